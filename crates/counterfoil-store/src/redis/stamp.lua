-- Says which ledger is here, and makes it when there is none.
--
-- KEYS  the meta key
-- ARGV  format, something that differs between all who open ledgers
local prefix = string.sub(KEYS[1], 1, -5)
local call = redis.call
local stamp = call('HMGET', KEYS[1], 'product', 'format', 'id')
if stamp[1] then
  return stamp
end
for _, name in ipairs({ 'meta', 'log', 'due', 'expires', 'position', 'folded' }) do
  if call('EXISTS', prefix .. name) == 1 then
    return redis.error_reply('CFFOREIGN ' .. prefix .. name .. ' is there')
  end
end
local id = redis.sha1hex(table.concat(call('TIME'), '.') .. ARGV[2])
call('HSET', KEYS[1], 'product', 'counterfoil', 'format', ARGV[1], 'id', id)
return { 'counterfoil', ARGV[1], id }
