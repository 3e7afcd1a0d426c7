-- Makes streams tombstones, whole or not at all.
--
-- KEYS  the meta key
-- ARGV  ledger id, then for each stream its id and its tombstone's version in eight bytes
local function number(version)
  return struct.unpack('>I8', version)
end

local heads, moved = {}, {}
for at = 2, #ARGV, 2 do
  local head, version = call('HGET', records, ARGV[at]), ARGV[at + 1]
  heads[at] = head
  if head and sub(head, 1, 1) == 'T' then
    if sub(head, 2) ~= version then
      moved[#moved + 1] = at / 2
    end
  elseif head and number(sub(head, 17, 24)) > number(version) then
    moved[#moved + 1] = at / 2
  end
end
if #moved > 0 then
  return moved
end
call('ZCARD', log)
call('ZCARD', due)
for at = 2, #ARGV, 2 do
  local head = heads[at]
  if not head then
    call('HSET', records, ARGV[at], 'T' .. ARGV[at + 1])
  elseif sub(head, 1, 1) ~= 'T' then
    bury(ARGV[at], head, ARGV[at + 1])
  end
end
return rewrite_batches() or 1
