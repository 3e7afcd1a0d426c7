-- Drops the records of streams that expired, leaving tombstones.
--
-- `expires` holds an entry per batch, with the earliest time in it; the newest record of each stream says when it really expires, or that it
-- was written since and is found by a later entry. What the index does not know of yet is left for the next time. Begins with a removal, so that Redis lets it run when it has no memory left.
--
-- KEYS  the meta key
-- ARGV  ledger id, expired before this, the same as its upper and lower 32 bits, at most so many streams
local upper_end, lower_end, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

-- Batches whose entry in the log one step writes again: each costs as much as it is long.
local TOUCHED_MAX = 64

local pruned, more, skipped = 0, 0, 0
while more == 0 do
  local entry = call('ZRANGEBYSCORE', expires, '-inf', ARGV[2], 'WITHSCORES', 'LIMIT', skipped, 1)
  if #entry == 0 then
    break
  end
  local places, earliest, kept = entry[1], entry[2], {}
  local upper_min, lower_min
  for at = 1, #places, 40 do
    local stream, version = sub(places, at, at + 31), unpacked('>I8', sub(places, at + 32, at + 39))
    local head = head_of(stream, version)
    if head ~= '' and not there(stream, version + 1) then
      local upper, lower = unpacked('>i4I4', sub(head, 50, 57))
      local expired = upper < upper_end or (upper == upper_end and lower < lower_end)
      if expired and (pruned == limit or touched >= TOUCHED_MAX) then
        more = 1
        -- What was not looked at is found by the time it has.
        kept[#kept + 1] = sub(places, at)
        upper_min = nil
        break
      end
      if expired and is_folded(head) then
        bury(stream, version, head, pack('>I8', version))
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
rewrite_batches()
return { pruned, more }
