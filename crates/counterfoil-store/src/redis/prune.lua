-- Drops the records of streams that expired, leaving tombstones.
--
-- `expires` holds an entry per batch, with the earliest time in it; the newest record of each stream says when it really expires, or that it
-- was written since and is found by a later entry. Begins with a removal, so that Redis lets it run when it has no memory left.
--
-- KEYS  the meta key
-- ARGV  ledger id, expired before this, the same as its upper and lower 32 bits, at most so many streams
local prefix = string.sub(KEYS[1], 1, -5)
local records, log, due, expires = prefix .. 'records', prefix .. 'log', prefix .. 'due', prefix .. 'expires'
local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
local upper_end, lower_end, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
-- In the place of a record that is gone. No stream has so many.
local NOBODY = string.rep('\0', 32) .. string.rep('\255', 8)

if call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return redis.error_reply('CFGONE this ledger is not here any more')
end

local function hex(bytes)
  return (string.gsub(bytes, '.', function(c)
    return format('%02x', byte(c))
  end))
end

-- Entries of the log that lose records: each is written again once, at the end.
local entries = {}
local function unlog(position)
  for _, entry in ipairs(entries) do
    if entry.base < position and position <= entry.base + #entry.places then
      entry.places[position - entry.base] = NOBODY
      return
    end
  end
  local found = call('ZREVRANGEBYSCORE', log, format('(%d', position), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local entry = { logged = found[1], base = tonumber(found[2]), places = {} }
  for place = 1, #found[1] / 40 do
    entry.places[place] = sub(found[1], 40 * place - 39, 40 * place)
  end
  entry.places[position - entry.base] = NOBODY
  entries[#entries + 1] = entry
end

local function bury(stream, head)
  local state, tenant, tool = byte(head, 57), byte(head, 58), byte(head, 54)
  call('ZREM', due, stream)
  call('ZREM', prefix .. 'by:' .. byte(head, 56) .. ':' .. sub(head, 59, 58 + state) .. ':' .. sub(head, 59 + state, 58 + state + tenant), stream)
  if byte(head, 56) == 1 and tool > 0 then
    call('DEL', prefix .. 'idemp:' .. sub(head, 59 + state + tenant, 58 + state + tenant + tool) .. ':' .. hex(stream))
  end
  unlog(tonumber(sub(head, 1, 16)))
  local version = sub(head, 17, 24)
  for earlier = 1, struct.unpack('>I8', version) - 1 do
    local field = stream .. struct.pack('>I8', earlier)
    unlog(tonumber(sub(call('HGET', records, field), 1, 16)))
    call('HDEL', records, field)
  end
  call('HSET', records, stream, 'T' .. version)
end

local pruned, more, skipped = 0, 0, 0
while more == 0 do
  local entry = call('ZRANGEBYSCORE', expires, '-inf', ARGV[2], 'WITHSCORES', 'LIMIT', skipped, 1)
  if #entry == 0 then
    break
  end
  local places, earliest, kept = entry[1], entry[2], {}
  local upper_min, lower_min
  for at = 1, #places, 40 do
    local stream = sub(places, at, at + 31)
    local head = call('HGET', records, stream)
    if head and sub(head, 17, 24) == sub(places, at + 32, at + 39) then
      local upper, lower = struct.unpack('>i4I4', sub(head, 45, 52))
      if upper < upper_end or (upper == upper_end and lower < lower_end) then
        if pruned == limit then
          more = 1
          -- What was not looked at is found by the time it has.
          kept[#kept + 1] = sub(places, at)
          upper_min = nil
          break
        end
        bury(stream, head)
        pruned = pruned + 1
      else
        kept[#kept + 1] = sub(places, at, at + 39)
        if not upper_min or upper < upper_min or (upper == upper_min and lower < lower_min) then
          upper_min, lower_min = upper, lower
        end
      end
    end
  end
  local left = table.concat(kept)
  if left == places then
    skipped = skipped + 1
  else
    call('ZREM', expires, places)
    if upper_min and more == 0 then
      earliest = format('%.0f', upper_min * 4294967296 + lower_min)
    end
    if left ~= '' then
      call('ZADD', expires, earliest, left)
    end
  end
end
for _, entry in ipairs(entries) do
  local left = table.concat(entry.places)
  call('ZREM', log, entry.logged)
  if left ~= string.rep(NOBODY, #entry.places) then
    call('ZADD', log, format('%d', entry.base), left)
  end
end
return { pruned, more }
