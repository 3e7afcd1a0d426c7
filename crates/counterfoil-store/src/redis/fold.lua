-- Brings the index up to the log, by a slice: what is due, where people find streams by state, and what effects are called.
--
-- Each stream is indexed as it stands at the end of the slice; that it was indexed as it stood before it, at the version before the first one in
-- the slice, its own records tell. May be broken off anywhere: the watermark rises last, and the same slice gives the same once more. Begins with a
-- removal, so that Redis lets it run when it has no memory left.
--
-- KEYS  the meta key
-- ARGV  ledger id, records in a slice, about, and how far behind the index may be at most, so that this does anything
--
-- Answers with the watermark and the last position.
local log, due, watermark = prefix .. 'log', prefix .. 'due', prefix .. 'folded'
-- Lua hands over at most 8,000 values at once. Even, so that pairs stay together.
local CHUNK = 4000
-- Redis keeps small sorted sets in a form that is searched from end to end, for each member that is added or removed. One member that
-- is too long for that form, at a place where nobody looks, makes it use the other.
local LONG = string.rep('-', 65)
local BATCHES = 64

if call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return redis.error_reply('CFGONE this ledger is not here any more')
end
local folded, last = tonumber(call('GET', watermark) or '0'), tonumber(call('GET', prefix .. 'position') or '0')
if folded >= last or last - folded > tonumber(ARGV[3]) then
  return { folded, last }
end

local slice, seen, order, count, upto = tonumber(ARGV[2]), {}, {}, 0, last
local from, more = format('%d', folded), true
while more do
  local entries = call('ZRANGEBYSCORE', log, from, '+inf', 'WITHSCORES', 'LIMIT', 0, BATCHES)
  more = #entries > 0
  for at = 1, #entries, 2 do
    local logged, base = entries[at], tonumber(entries[at + 1])
    for place = 1, #logged / 40 do
      local whole = sub(logged, 40 * place - 39, 40 * place)
      if whole ~= NOBODY then
        local stream, version = sub(whole, 1, 32), unpacked('>I8', sub(whole, 33, 40)) + 1
        local known = seen[stream]
        if known then
          known.last, known.position = version, base + place
        else
          seen[stream] = { first = version, last = version, position = base + place }
          order[#order + 1] = stream
        end
        count = count + 1
      end
    end
    from = '(' .. format('%d', base)
    if count >= slice then
      upto, more = base + #logged / 40, false
      break
    end
  end
end

local indexes = {}
local function index(head)
  local name = index_of(head)
  local known = indexes[name]
  if not known then
    known = { added = {}, removed = {}, new = call('ZCARD', name) == 0 }
    indexes[name] = known
  end
  return known
end
local dues, undue, named, unnamed = {}, {}, {}, {}
for i = 1, #order do
  local stream = order[i]
  local now = seen[stream]
  local head = head_of(stream, now.last)
  -- One that cannot be read is found by whoever loads it.
  if head ~= '' then
    local added = index(head).added
    added[#added + 1], added[#added + 2] = format('%d', now.position), stream .. pack('>I8', now.last)
    local name = name_of(stream, head)
    if name then
      named[#named + 1], named[#named + 2] = name, sub(head, 68, 67 + byte(head, 62))
    end
    -- Bit 1: due.
    local is_due, was_due = byte(head, 58) % 4 >= 2, false
    if is_due then
      local upper, lower = unpacked('>i4I4', sub(head, 42, 49))
      dues[#dues + 1], dues[#dues + 2] = format('%.0f', upper * 4294967296 + lower), stream
    end
    if now.first > 1 then
      local before = head_of(stream, now.first - 1)
      if before ~= '' then
        local removed = index(before).removed
        removed[#removed + 1] = stream .. pack('>I8', now.first - 1)
        was_due = byte(before, 58) % 4 >= 2
        local old = name_of(stream, before)
        if old and old ~= name then
          unnamed[#unnamed + 1] = old
        end
      end
    end
    if was_due and not is_due then
      undue[#undue + 1] = stream
    end
  end
end

local none_due = call('ZCARD', due) == 0
local function many(command, name, args)
  for at = 1, #args, CHUNK do
    call(command, name, unpack(args, at, math.min(at + CHUNK - 1, #args)))
  end
end
call('ZREM', due, LONG .. LONG)
many('ZREM', due, undue)
if none_due then
  call('ZADD', due, '+inf', LONG)
end
many('ZADD', due, dues)
for name, changes in pairs(indexes) do
  many('ZREM', name, changes.removed)
  if changes.new then
    call('ZADD', name, '-1', LONG)
  end
  many('ZADD', name, changes.added)
end
for i = 1, #unnamed do
  call('DEL', unnamed[i])
end
for at = 1, #named, CHUNK do
  call('MSET', unpack(named, at, math.min(at + CHUNK - 1, #named)))
end
call('SET', watermark, format('%d', upto))
return { upto, last }
