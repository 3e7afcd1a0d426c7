-- Some of the tombstones. A script, so that the records among which they are found need not leave Redis.
--
-- KEYS  the meta key
-- ARGV  ledger id, cursor, about how many fields to look at
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return redis.error_reply('CFGONE this ledger is not here any more')
end
local page = redis.call('HSCAN', string.sub(KEYS[1], 1, -5) .. 'records', ARGV[2], 'COUNT', ARGV[3])
local found = {}
for at = 1, #page[2], 2 do
  local stream, head = page[2][at], page[2][at + 1]
  if #stream == 32 and string.sub(head, 1, 1) == 'T' then
    found[#found + 1] = stream
    found[#found + 1] = head
  end
end
return { page[1], found }
