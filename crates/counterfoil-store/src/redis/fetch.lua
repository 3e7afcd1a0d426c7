-- Records: heads with their bodies, as they are together at one moment.
--
-- KEYS  the meta key
-- ARGV  how many fields stand for one record, then the fields of `records`: of those that stand for one record the first that is there is told
--
-- Answers with a head and a body for each record; nothing for what is not there, and no body for a tombstone.
local prefix = string.sub(KEYS[1], 1, -5)
local call, sub = redis.call, string.sub
local told, count, each = {}, 0, tonumber(ARGV[1])
for first = 2, #ARGV, each do
  local head, body = false, false
  for at = first, first + each - 1 do
    head = head or call('HGET', prefix .. 'records', ARGV[at])
  end
  if head and sub(head, 1, 1) ~= 'T' then
    local piece, slot = struct.unpack('>I4I4', sub(head, -12, -5))
    local bodies = prefix .. 'bodies:' .. string.format('%d', tonumber(sub(head, 1, 16))) .. ':' .. piece
    local entry = call('GETRANGE', bodies, 8 * slot - 4, 8 * slot + 3)
    if #entry == 8 then
      local from, length = struct.unpack('>I4I4', entry)
      body = length == 0 and '' or call('GETRANGE', bodies, from, from + length - 1)
    end
  end
  told[count + 1], told[count + 2] = head, body
  count = count + 2
end
return told
