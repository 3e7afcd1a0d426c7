-- Appends one batch, whole or not at all.
--
-- Runs inside a transaction (MULTI), after the bodies of the batch were put under `stage`, and before whatever is still there is deleted. They do not
-- pass through this script: Lua hashes every byte of every string it is given.
--
-- Redis does not roll a script back, so everything that can be refused is asked before the first write: the ledger's identity, every
-- expected version, the type of every key that is written to. The first write is one that Redis refuses when it has no memory left; after it
-- Redis refuses nothing more to the same script.
--
-- Redis does one thing at a time, so what is done here is done to all who use it: few commands with many arguments, and as much as
-- possible is made by the client.
--
-- KEYS  the meta key
-- ARGV  ledger id, last position this process knows of, writes, elements of `due`, elements of `names`, the batch's entry in the log (for
--       each write the stream and its expected version), earliest expiry, the batch's entry in `expires`, what others hear, how many
--       pieces the bodies are in, 1 if the sender listens to what is heard or else 0, the name of its stage;
--       then for all writes: streams, heads without the position before the batch;
--       then (time, stream)… that become due, (name, state)… that people look for
local prefix = string.sub(KEYS[1], 1, -5)
local records, log, due, expires, last = prefix .. 'records', prefix .. 'log', prefix .. 'due', prefix .. 'expires', prefix .. 'position'
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

local writes, logged = tonumber(ARGV[3]), ARGV[6]
local S, H = 12, 12 + writes
local D = H + writes
local N = D + ARGV[4]

local newest = {}
local moved = {}
for from = 1, writes, CHUNK do
  local to = math.min(from + CHUNK - 1, writes)
  local found = call('HMGET', records, unpack(ARGV, S + from, S + to))
  for i = from, to do
    local head = found[i - from + 1]
    local expected = sub(logged, 40 * i - 7, 40 * i)
    -- A tombstone is shorter than a head: no version is expected of it.
    if head and sub(head, 17, 24) == expected then
      newest[i] = head
    elseif head or expected ~= '\0\0\0\0\0\0\0\0' then
      moved[#moved + 1] = i
    end
  end
end
if #moved > 0 then
  return moved
end

-- Redis keeps small sorted sets in a form that is searched from end to end, for each member that is added or removed. One member that
-- is too long for that form, at a place where nobody looks, makes it use the other.
local LONG = string.rep('-', 65)

-- Where people find a stream by its current summary: by kind, state and tenant.
local indexes = {}
local function index_of(head)
  local tag = sub(head, 56, 58 + byte(head, 57) + byte(head, 58))
  local index = indexes[tag]
  if not index then
    local state = byte(tag, 2)
    index = { key = prefix .. 'by:' .. byte(tag, 1) .. ':' .. sub(tag, 4, 3 + state) .. ':' .. sub(tag, 4 + state), added = {}, count = 0, removed = {} }
    index.new = call('ZCARD', index.key) == 0
    indexes[tag] = index
  end
  return index
end
-- Only effects are named for people, by their tool.
local function tool_of(head)
  if byte(head, 56) ~= 1 then
    return ''
  end
  local from = 59 + byte(head, 57) + byte(head, 58)
  return sub(head, from, from + byte(head, 54) - 1)
end

-- Counted by hand: asking a table for its length costs Lua a search.
local kept, fields, undue, unnamed = {}, 0, {}, {}
local before_batch = format('%016d', base)
for i = 1, writes do
  local stream = ARGV[S + i]
  local head = before_batch .. ARGV[H + i]
  kept[fields + 1], kept[fields + 2] = stream, head
  fields = fields + 2
  local index = index_of(head)
  local count = index.count
  index.added[count + 1], index.added[count + 2] = base + i, stream
  index.count = count + 2
  local old = newest[i]
  if old then
    kept[fields + 1], kept[fields + 2] = stream .. sub(old, 17, 24), old
    fields = fields + 2
    local before = index_of(old)
    if before ~= index then
      before.removed[#before.removed + 1] = stream
    end
    -- Bit 1: due.
    if byte(old, 53) % 4 >= 2 and byte(head, 53) % 4 < 2 then
      undue[#undue + 1] = stream
    end
    local tool = tool_of(old)
    if tool ~= '' and tool ~= tool_of(head) then
      unnamed[#unnamed + 1] = prefix .. 'idemp:' .. tool .. ':' .. string.gsub(stream, '.', function(c)
        return format('%02x', byte(c))
      end)
    end
  end
end
call('ZCARD', log)
local none_due = call('ZCARD', due) == 0
call('ZCARD', expires)
local staged, bodies = {}, {}
for piece = 1, tonumber(ARGV[10]) do
  staged[piece] = prefix .. 'stage:' .. ARGV[12] .. ':' .. piece
  bodies[piece] = prefix .. 'bodies:' .. format('%d', base) .. ':' .. piece
  if call('EXISTS', staged[piece]) == 0 or call('EXISTS', bodies[piece]) == 1 then
    return redis.error_reply('CFSTAGE the bodies of a batch are not where they should be')
  end
end

call('SET', last, format('%d', base + writes))
local function rest()
  local function many(command, key, args, from, to)
    for at = from, to, CHUNK do
      call(command, key, unpack(args, at, math.min(at + CHUNK - 1, to)))
    end
  end
  for piece = 1, #staged do
    call('RENAME', staged[piece], bodies[piece])
  end
  many('HSET', records, kept, 1, fields)
  call('ZADD', log, format('%d', base), logged)
  for _, index in pairs(indexes) do
    if index.new then
      call('ZADD', index.key, '-1', LONG)
    end
    many('ZREM', index.key, index.removed, 1, #index.removed)
    many('ZADD', index.key, index.added, 1, index.count)
  end
  if none_due then
    call('ZADD', due, '+inf', LONG)
  end
  many('ZREM', due, undue, 1, #undue)
  many('ZADD', due, ARGV, D + 1, N)
  if ARGV[8] ~= '' then
    call('ZADD', expires, ARGV[7], ARGV[8])
  end
  for i = 1, #unnamed do
    call('DEL', unnamed[i])
  end
  for from = N + 1, N + ARGV[5], CHUNK do
    call('MSET', unpack(ARGV, from, math.min(from + CHUNK - 1, N + ARGV[5])))
  end
  -- A hint, on which nobody depends; the sender knows anyway.
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', prefix .. 'heard')
  if listeners.err or listeners[2] > tonumber(ARGV[11]) then
    redis.pcall('PUBLISH', prefix .. 'heard', ARGV[9])
  end
end
local whole, why = pcall(rest)
if not whole then
  if type(why) == 'table' then
    why = why.err
  end
  return redis.error_reply('CFHALF ' .. tostring(why))
end
return base + writes
