-- Accepts a batch whose records were just written, or takes them away again.
--
-- Runs inside a transaction (MULTI), after an MSETNX of its records and of the key of the batch: that wrote all of them, or none because a
-- stream has gone on. What a key cannot tell is asked here, before the first write of this script: the ledger's identity, that Redis has not gone
-- back, that each record which a write goes on from is still there, the type of every key that is written to.
--
-- Redis does one thing at a time, and whatever a script does for each write is dear: nearly nothing is.
--
-- KEYS  the meta key
-- ARGV  ledger id, last position this process knows of, the batch's entry in the log (for each write the stream and its expected version),
--       earliest expiry, the batch's entry in `expires`, what others hear, 1 if the sender listens to what is heard or else 0, the batch;
--       then the keys of all records that writes go on from
--
-- Answers with the last position; with 0 if a stream is not as it was expected. Errors that begin with CF say that nothing is left of the batch, or (CFHALF)
-- that some of it is; after any other, nobody knows.
local prefix = string.sub(KEYS[1], 1, -5)
local log, expires, last = prefix .. 'log', prefix .. 'expires', prefix .. 'position'
local call, sub, format = redis.call, string.sub, string.format
local logged, batch = ARGV[3], prefix .. 'b:' .. ARGV[8]
local writes = #logged / 40

if call('EXISTS', batch) == 0 then
  return 0
end

local base
local function look()
  if call('HGET', KEYS[1], 'id') ~= ARGV[1] then
    return 'CFGONE this ledger is not here any more'
  end
  base = tonumber(call('GET', last) or '0')
  if base < tonumber(ARGV[2]) then
    return 'CFBACK the last position is ' .. format('%d', base)
  end
  call('ZCARD', log)
  call('ZCARD', expires)
  for i = 9, #ARGV do
    if call('GETRANGE', ARGV[i], 0, 0) ~= 'R' then
      return 'moved'
    end
  end
  call('SET', last, format('%d', base + writes))
end
local asked, why = pcall(look)
if not asked then
  why = type(why) == 'table' and why.err or tostring(why)
end
if why then
  for at = 0, writes - 1 do
    local stream, expected = sub(logged, 40 * at + 1, 40 * at + 32), struct.unpack('>I8', sub(logged, 40 * at + 33, 40 * at + 40))
    call('DEL', prefix .. 'r:' .. stream .. struct.pack('>I8', expected + 1))
  end
  call('DEL', batch)
  return why == 'moved' and 0 or redis.error_reply(sub(why, 1, 2) == 'CF' and why or 'CFUNDONE ' .. why)
end

local function rest()
  call('SET', batch, format('%d', base))
  call('ZADD', log, format('%d', base), logged)
  if ARGV[5] ~= '' then
    call('ZADD', expires, ARGV[4], ARGV[5])
  end
  -- A hint, on which nobody depends; the sender knows anyway.
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', prefix .. 'heard')
  if listeners.err or listeners[2] > tonumber(ARGV[7]) then
    redis.pcall('PUBLISH', prefix .. 'heard', ARGV[6])
  end
end
local whole, half = pcall(rest)
if not whole then
  return redis.error_reply('CFHALF ' .. (type(half) == 'table' and half.err or tostring(half)))
end
return base + writes
