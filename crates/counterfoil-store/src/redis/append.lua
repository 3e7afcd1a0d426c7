-- Appends one batch, whole or not at all.
--
-- Redis does not roll a script back, so everything that can be refused is asked before the first write: the ledger's identity, every
-- expected version, the type of every key that is written to. The first write is one that Redis refuses when it has no memory left; after it
-- Redis refuses nothing more to the same script.
--
-- KEYS  the meta key
-- ARGV  ledger id, last position this process knows of, writes, elements of `due`, of `expires`, of `names`, what others hear;
--       then for all writes: streams, expected versions, keys of their lists, headers, bodies;
--       then (time, stream)… that become due, (time, stream)… that expire, (name, state)… that people look for
local prefix = string.sub(KEYS[1], 1, -5)
local heads, log, due, expires, last = prefix .. 'heads', prefix .. 'log', prefix .. 'due', prefix .. 'expires', prefix .. 'position'
local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
-- Lua hands over at most 8,000 values at once. Even, so that pairs stay together.
local CHUNK = 4000

if call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return redis.error_reply('CFGONE this ledger is not here any more')
end
local base = tonumber(call('GET', last) or '0')
if base < tonumber(ARGV[2]) then
  return redis.error_reply('CFBACK the last position is ' .. format('%d', base))
end

local writes = tonumber(ARGV[3])
local S = 7
local E = S + writes
local K = E + writes
local H = K + writes
local B = H + writes

local old = {}
local moved = {}
for from = 1, writes, CHUNK do
  local to = math.min(from + CHUNK - 1, writes)
  local found = call('HMGET', heads, unpack(ARGV, S + from, S + to))
  for i = from, to do
    local head = found[i - from + 1]
    -- A tombstone is shorter than a live head: no version is expected of it.
    if head and sub(head, 17, 24) == ARGV[E + i] then
      old[i] = head
    elseif head or ARGV[E + i] ~= '\0\0\0\0\0\0\0\0' then
      moved[#moved + 1] = i
    end
  end
end
if #moved > 0 then
  return moved
end

-- Where people find a stream by its current summary: by kind, state and tenant.
local indexes = {}
local function index_of(head)
  local tag = sub(head, 56, 58 + byte(head, 57) + byte(head, 58))
  local index = indexes[tag]
  if not index then
    local state = byte(tag, 2)
    index = prefix .. 'by:' .. byte(tag, 1) .. ':' .. sub(tag, 4, 3 + state) .. ':' .. sub(tag, 4 + state)
    call('ZCARD', index)
    indexes[tag] = index
  end
  return index
end
-- The effect's name, when it has one: the tool, or nothing.
local function tool_of(head)
  if byte(head, 56) == 1 then
    local from = 59 + byte(head, 57) + byte(head, 58)
    return sub(head, from, from + byte(head, 54) - 1)
  end
  return ''
end
local function put(group, key, a, b)
  local args = group[key]
  if not args then
    args = {}
    group[key] = args
  end
  args[#args + 1] = a
  args[#args + 1] = b
end

local records, logged, headed, undue, unexpiring, unnamed, found, lost = {}, {}, {}, {}, {}, {}, {}, {}
for i = 1, writes do
  local stream = ARGV[S + i]
  local position = format('%016d', base + i)
  local record = position .. ARGV[H + i]
  records[i] = record
  logged[2 * i - 1] = position
  logged[2 * i] = stream .. ARGV[E + i]
  headed[2 * i - 1] = stream
  headed[2 * i] = record
  local index = index_of(record)
  put(found, index, position, stream)
  local head = old[i]
  if head then
    local before = index_of(head)
    if before ~= index then
      put(lost, before, stream)
    end
    -- Bit 1: due, bit 2: expires.
    local had, has = byte(head, 53), byte(record, 53)
    if had % 4 >= 2 and has % 4 < 2 then
      undue[#undue + 1] = stream
    end
    if had >= 4 and has < 4 then
      unexpiring[#unexpiring + 1] = stream
    end
    local tool = tool_of(head)
    if tool ~= '' and tool ~= tool_of(record) then
      unnamed[#unnamed + 1] = prefix .. 'idemp:' .. tool .. ':' .. sub(ARGV[K + i], -64)
    end
  end
end
call('ZCARD', log)
call('ZCARD', due)
call('ZCARD', expires)

call('SET', last, format('%d', base + writes))
for i = 1, writes do
  local pushed = redis.pcall('RPUSH', ARGV[K + i], records[i], ARGV[B + i])
  if type(pushed) == 'table' then
    for undone = 1, i - 1 do
      call('RPOP', ARGV[K + undone], 2)
    end
    call('SET', last, format('%d', base))
    return redis.error_reply('CFKEY ' .. ARGV[K + i] .. ': ' .. pushed.err)
  end
end
local function rest()
  local function many(command, key, args, from, to)
    for at = from, to, CHUNK do
      call(command, key, unpack(args, at, math.min(at + CHUNK - 1, to)))
    end
  end
  many('HSET', heads, headed, 1, #headed)
  many('ZADD', log, logged, 1, #logged)
  for index, args in pairs(lost) do
    many('ZREM', index, args, 1, #args)
  end
  for index, args in pairs(found) do
    many('ZADD', index, args, 1, #args)
  end
  many('ZREM', due, undue, 1, #undue)
  many('ZREM', expires, unexpiring, 1, #unexpiring)
  local at = B + writes
  many('ZADD', due, ARGV, at + 1, at + ARGV[4])
  at = at + ARGV[4]
  many('ZADD', expires, ARGV, at + 1, at + ARGV[5])
  at = at + ARGV[5]
  for i = 1, #unnamed do
    call('DEL', unnamed[i])
  end
  for from = at + 1, at + ARGV[6], CHUNK do
    call('MSET', unpack(ARGV, from, math.min(from + CHUNK - 1, at + ARGV[6])))
  end
  -- A hint: nobody depends on it.
  redis.pcall('PUBLISH', prefix .. 'heard', ARGV[7])
end
local whole, why = pcall(rest)
if not whole then
  if type(why) == 'table' then
    why = why.err
  end
  return redis.error_reply('CFHALF ' .. tostring(why))
end
return base + writes
