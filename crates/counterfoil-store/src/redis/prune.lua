-- Drops the records of streams that expired, leaving tombstones.
--
-- Begins with a removal, so that Redis lets it run when it has no memory left.
--
-- KEYS  the meta key
-- ARGV  ledger id, expired before this, at most so many streams
local prefix = string.sub(KEYS[1], 1, -5)
local heads, log, due, expires = prefix .. 'heads', prefix .. 'log', prefix .. 'due', prefix .. 'expires'
local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
local CHUNK = 4000

if call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return redis.error_reply('CFGONE this ledger is not here any more')
end
local function hex(bytes)
  return (string.gsub(bytes, '.', function(c)
    return format('%02x', byte(c))
  end))
end

local expired = {}
if tonumber(ARGV[3]) > 0 then
  expired = call('ZRANGEBYSCORE', expires, '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
end
for _, stream in ipairs(expired) do
  local head = call('HGET', heads, stream)
  local name = hex(stream)
  local state, tenant, tool = byte(head, 57), byte(head, 58), byte(head, 54)
  call('ZREM', expires, stream)
  call('ZREM', due, stream)
  call('ZREM', prefix .. 'by:' .. byte(head, 56) .. ':' .. sub(head, 59, 58 + state) .. ':' .. sub(head, 59 + state, 58 + state + tenant), stream)
  if byte(head, 56) == 1 and tool > 0 then
    call('DEL', prefix .. 'idemp:' .. sub(head, 59 + state + tenant, 58 + state + tenant + tool) .. ':' .. name)
  end
  local version = sub(head, 17, 24)
  call('HSET', heads, stream, 'T' .. version)
  call('UNLINK', prefix .. 'stream:' .. name)
  local records = struct.unpack('>I8', version)
  for from = 1, records, CHUNK do
    local members = {}
    for record = from, math.min(from + CHUNK - 1, records) do
      members[#members + 1] = stream .. struct.pack('>I8', record - 1)
    end
    call('ZREM', log, unpack(members))
  end
end
local left = call('ZRANGEBYSCORE', expires, '-inf', '(' .. ARGV[2], 'LIMIT', 0, 1)
return { #expired, #left }
