-- Where streams stand: for each its newest version, or -1 for a tombstone.
--
-- KEYS  the meta key
-- ARGV  streams
local stands = {}
for at = 1, #ARGV do
  stands[at] = newest(ARGV[at])
  if stands[at] == 1 and call('GETRANGE', key(ARGV[at], 1), 0, 0) == 'T' then
    stands[at] = -1
  end
end
return stands
