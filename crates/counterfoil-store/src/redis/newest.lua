-- What the scripts that look at records share. Stands before them.
--
-- KEYS  the meta key
local prefix = string.sub(KEYS[1], 1, -5)
local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
local pack, unpacked = struct.pack, struct.unpack

-- The shortest value of a record: no names, no body.
local SHORTEST = 67
-- In the log, in the place of a record that is gone. No stream has so many.
local NOBODY = string.rep('\0', 32) .. string.rep('\255', 8)

local function key(stream, version)
  return prefix .. 'r:' .. stream .. pack('>I8', version)
end

local function there(stream, version)
  return call('EXISTS', key(stream, version)) == 1
end

-- The newest version of a stream, 0 if it has none. Versions have no holes, so it lies between one that is there and one that is not.
-- A tombstone is version 1 alone.
local function newest(stream)
  local low, high = 0, 1
  while there(stream, high) do
    low, high = high, 2 * high
  end
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if there(stream, middle) then
      low = middle
    else
      high = middle
    end
  end
  return low
end

-- What stands before the body, or a part of it that has all but the run. '' where there is no record.
local function head_of(stream, version)
  local place = key(stream, version)
  local head = call('GETRANGE', place, 0, 255)
  if sub(head, 1, 1) ~= 'R' or #head < SHORTEST then
    return ''
  end
  local names = byte(head, 59) + byte(head, 62) + byte(head, 63)
  if SHORTEST + names > 256 then
    head = call('GETRANGE', place, 0, SHORTEST + names)
  end
  return head
end

-- The position before the batch that a record is of. Nothing if nobody knows.
local function base_of(head)
  return tonumber(call('GET', prefix .. 'b:' .. sub(head, 2, 17)) or nil)
end

-- Where people find a stream by its summary: by kind, state and tenant.
local function index_of(head)
  local state, tenant = byte(head, 62), byte(head, 63)
  return prefix .. 'by:' .. byte(head, 61) .. ':' .. sub(head, 68, 67 + state) .. ':' .. sub(head, 68 + state, 67 + state + tenant)
end

-- Each byte's digits, made when they are first needed.
local HEX = setmetatable({}, {
  __index = function(digits, c)
    digits[c] = format('%02x', byte(c))
    return digits[c]
  end,
})

-- What people know an effect by. Nothing for whatever else there is.
local function name_of(stream, head)
  local tool = byte(head, 59)
  if byte(head, 61) ~= 1 or tool == 0 then
    return nil
  end
  local from = 68 + byte(head, 62) + byte(head, 63)
  return prefix .. 'idemp:' .. sub(head, from, from + tool - 1) .. ':' .. (string.gsub(stream, '.', HEX))
end
