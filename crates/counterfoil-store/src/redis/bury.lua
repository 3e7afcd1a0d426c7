-- What burying a stream takes. Stands before the scripts that do it.
--
-- KEYS  the meta key
-- ARGV  ledger id, then what the script that follows says
local prefix = string.sub(KEYS[1], 1, -5)
local records, log, due, expires = prefix .. 'records', prefix .. 'log', prefix .. 'due', prefix .. 'expires'
local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
-- In the place of a record that is gone. No stream has so many.
local NOBODY = string.rep('\0', 32) .. string.rep('\255', 8)
-- In the place of a body that is gone.
local NOWHERE = string.rep('\0', 8)

if call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return redis.error_reply('CFGONE this ledger is not here any more')
end

local function hex(bytes)
  return (string.gsub(bytes, '.', function(c)
    return format('%02x', byte(c))
  end))
end

-- Batches that lose records, by the position before them: each is written again once, at the end. And in how many pieces their bodies are.
local batches, touched = {}, 0
local function unlog(head)
  local base, place, piece, slot = tonumber(sub(head, 1, 16)), struct.unpack('>I4I4I4', sub(head, -16, -5))
  local batch = batches[base]
  if not batch then
    local logged = call('ZRANGEBYSCORE', log, format('%d', base), format('%d', base))[1]
    batch = { logged = logged, places = {}, pieces = {} }
    for at = 1, #logged / 40 do
      batch.places[at] = sub(logged, 40 * at - 39, 40 * at)
    end
    batches[base] = batch
  end
  batch.places[place] = NOBODY
  if not batch.pieces[piece] then
    batch.pieces[piece] = {}
    touched = touched + 1
  end
  batch.pieces[piece][slot] = true
end

-- `version`: what the tombstone says, eight bytes.
local function bury(stream, head, version)
  local state, tenant, tool = byte(head, 57), byte(head, 58), byte(head, 54)
  call('ZREM', due, stream)
  call('ZREM', prefix .. 'by:' .. byte(head, 56) .. ':' .. sub(head, 59, 58 + state) .. ':' .. sub(head, 59 + state, 58 + state + tenant), stream)
  if byte(head, 56) == 1 and tool > 0 then
    call('DEL', prefix .. 'idemp:' .. sub(head, 59 + state + tenant, 58 + state + tenant + tool) .. ':' .. hex(stream))
  end
  unlog(head)
  for earlier = 1, struct.unpack('>I8', sub(head, 17, 24)) - 1 do
    local field = stream .. struct.pack('>I8', earlier)
    unlog(call('HGET', records, field))
    call('HDEL', records, field)
  end
  call('HSET', records, stream, 'T' .. version)
end

-- A piece of bodies without those whose records are gone. `nil` when none is left. What is left keeps its slot.
local function without(bodies, gone)
  local slots = struct.unpack('>I4', bodies)
  local entries, texts, at, left = {}, {}, 4 + 8 * slots, false
  for slot = 1, slots do
    local from, length = struct.unpack('>I4I4', sub(bodies, 8 * slot - 3, 8 * slot + 4))
    entries[slot], texts[slot] = NOWHERE, ''
    if from > 0 and not gone[slot] then
      entries[slot], texts[slot], left = struct.pack('>I4I4', at, length), sub(bodies, from + 1, from + length), true
      at = at + length
    end
  end
  return left and sub(bodies, 1, 4) .. table.concat(entries) .. table.concat(texts) or nil
end

-- After the last burial: log and bodies without what is gone. Bodies that cannot be read are left, and named: everything else is done by then.
local function rewrite_batches()
  local unreadable
  for base, batch in pairs(batches) do
    local left = table.concat(batch.places)
    call('ZREM', log, batch.logged)
    if left ~= string.rep(NOBODY, #batch.places) then
      call('ZADD', log, format('%d', base), left)
    end
    for piece, gone in pairs(batch.pieces) do
      local key = prefix .. 'bodies:' .. format('%d', base) .. ':' .. piece
      local readable, kept = pcall(function()
        local bodies = call('GET', key)
        return bodies and without(bodies, gone)
      end)
      if not readable then
        unreadable = key
      elseif kept then
        call('SET', key, kept)
      else
        call('DEL', key)
      end
    end
  end
  return unreadable and redis.error_reply('CFBODIES ' .. unreadable)
end

