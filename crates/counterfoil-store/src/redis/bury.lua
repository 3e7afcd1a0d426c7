-- What burying a stream takes. Stands before the scripts that do it.
--
-- KEYS  the meta key
-- ARGV  ledger id, then what the script that follows says
local prefix = string.sub(KEYS[1], 1, -5)
local records, log, due, expires = prefix .. 'records', prefix .. 'log', prefix .. 'due', prefix .. 'expires'
local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
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

-- `version`: what the tombstone says, eight bytes.
local function bury(stream, head, version)
  local state, tenant, tool = byte(head, 57), byte(head, 58), byte(head, 54)
  call('ZREM', due, stream)
  call('ZREM', prefix .. 'by:' .. byte(head, 56) .. ':' .. sub(head, 59, 58 + state) .. ':' .. sub(head, 59 + state, 58 + state + tenant), stream)
  if byte(head, 56) == 1 and tool > 0 then
    call('DEL', prefix .. 'idemp:' .. sub(head, 59 + state + tenant, 58 + state + tenant + tool) .. ':' .. hex(stream))
  end
  unlog(tonumber(sub(head, 1, 16)))
  for earlier = 1, struct.unpack('>I8', sub(head, 17, 24)) - 1 do
    local field = stream .. struct.pack('>I8', earlier)
    unlog(tonumber(sub(call('HGET', records, field), 1, 16)))
    call('HDEL', records, field)
  end
  call('HSET', records, stream, 'T' .. version)
end

-- After the last burial: the log without what is gone.
local function rewrite_log()
  for _, entry in ipairs(entries) do
    local left = table.concat(entry.places)
    call('ZREM', log, entry.logged)
    if left ~= string.rep(NOBODY, #entry.places) then
      call('ZADD', log, format('%d', entry.base), left)
    end
  end
end

