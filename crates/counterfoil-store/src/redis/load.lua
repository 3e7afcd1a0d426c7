-- The records of one stream, as they are together at one moment.
--
-- KEYS  the meta key
-- ARGV  stream, how many of the newest records are wanted, at most so many at once, up to which version (0: the newest)
--
-- Answers with the version of the last record, and for each record from the oldest its value and the position before its batch; with the version
-- below zero for a tombstone; with nothing for a stream that was never written.
local stream, most, step, upto = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local version = upto
if version == 0 then
  version = newest(stream)
  if version == 0 then
    if there(stream, 2) then
      return redis.error_reply('CFHOLE the first record is missing')
    end
    return {}
  end
end
local told = { version }
if version == 1 then
  local grave = call('GETRANGE', key(stream, 1), 0, 8)
  if sub(grave, 1, 1) == 'T' then
    return { -unpacked('>I8', sub(grave, 2, 9)) }
  end
end
for at = math.max(1, version - math.min(most, step) + 1), version do
  local value = call('GET', key(stream, at))
  told[#told + 1] = value
  told[#told + 1] = value and call('GET', prefix .. 'b:' .. sub(value, 2, 17))
end
return told
