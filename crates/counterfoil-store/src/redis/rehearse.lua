-- Tries every command that the other scripts use, on a key that is gone afterwards: a user who may not use one of them is told at the
-- start, and not in the middle of a batch.
--
-- KEYS  the meta key
local key = string.sub(KEYS[1], 1, -5) .. 'rehearsal'
local call = redis.call
call('MSETNX', key, '1')
call('SET', key, '1')
call('GET', key)
call('GETRANGE', key, 0, 0)
call('EXISTS', key)
call('DEL', key)
call('MSET', key, '1')
call('DEL', key)
call('HSET', key, '1', '1')
call('HGET', key, '1')
call('HMGET', key, '1')
call('DEL', key)
call('ZADD', key, '1', '1')
call('ZCARD', key)
call('ZRANGE', key, '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, 1)
call('ZRANGEBYSCORE', key, '-inf', '+inf', 'LIMIT', 0, 1)
call('ZREM', key, '1')
call('PUBLISH', key, '')
return 1
