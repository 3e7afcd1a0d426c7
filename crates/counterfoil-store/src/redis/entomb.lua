-- Makes streams tombstones, whole or not at all.
--
-- KEYS  the meta key
-- ARGV  ledger id, then for each stream its id and its tombstone's version in eight bytes
--
-- Answers with 1; with which streams have moved; with 0 if the index does not know yet of all that is to go.
local stands, heads, moved, unknown = {}, {}, {}, false
for at = 2, #ARGV, 2 do
  local stream, version = ARGV[at], unpacked('>I8', ARGV[at + 1])
  local stand = newest(stream)
  local head = head_of(stream, stand)
  if stand == 1 and head == '' then
    -- A tombstone.
    stand = 0
    if call('GET', key(stream, 1)) ~= 'T' .. ARGV[at + 1] then
      moved[#moved + 1] = at / 2
    end
    heads[at] = 'T'
  elseif stand > version then
    moved[#moved + 1] = at / 2
  elseif stand > 0 then
    heads[at] = head
    unknown = unknown or not is_folded(head)
  end
  stands[at] = stand
end
if #moved > 0 then
  return moved
end
if unknown then
  return 0
end
call('ZCARD', log)
call('ZCARD', due)
for at = 2, #ARGV, 2 do
  if not heads[at] then
    call('SET', key(ARGV[at], 1), 'T' .. ARGV[at + 1])
  elseif heads[at] ~= 'T' then
    bury(ARGV[at], stands[at], heads[at], ARGV[at + 1])
  end
end
rewrite_batches()
return 1
