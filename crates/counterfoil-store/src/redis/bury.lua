-- What burying a stream takes. Stands before the scripts that do it.
--
-- KEYS  the meta key
-- ARGV  ledger id, then what the script that follows says
local log, due, expires = prefix .. 'log', prefix .. 'due', prefix .. 'expires'

if call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return redis.error_reply('CFGONE this ledger is not here any more')
end
local folded = tonumber(call('GET', prefix .. 'folded') or '0')

-- Batches that lose records: each is written again once, at the end.
local batches, touched = {}, 0
local function unlog(head)
  local name, place = sub(head, 2, 17), unpacked('>I4', sub(head, 18, 21))
  local batch = batches[name]
  if not batch then
    local base = call('GET', prefix .. 'b:' .. name)
    local logged = base and call('ZRANGEBYSCORE', log, base, base)[1]
    if not logged then
      return
    end
    batch = { base = base, logged = logged, places = {} }
    for at = 1, #logged / 40 do
      batch.places[at] = sub(logged, 40 * at - 39, 40 * at)
    end
    batches[name] = batch
    touched = touched + 1
  end
  batch.places[place] = NOBODY
end

-- Whether the index knows of the record: only then can it be taken out of there.
local function is_folded(head)
  local base = base_of(head)
  return base ~= nil and base < folded
end

-- `version`: of its newest record, whose head this is. `told`: what the tombstone says, eight bytes.
local function bury(stream, version, head, told)
  call('ZREM', index_of(head), stream .. pack('>I8', version))
  call('ZREM', due, stream)
  local name = name_of(stream, head)
  if name then
    call('DEL', name)
  end
  unlog(head)
  for earlier = 1, version - 1 do
    local before = head_of(stream, earlier)
    if before ~= '' then
      unlog(before)
    end
  end
  for gone = 2, version do
    call('DEL', key(stream, gone))
  end
  call('SET', key(stream, 1), 'T' .. told)
end

-- After the last burial: the log without what is gone.
local function rewrite_batches()
  for name, batch in pairs(batches) do
    local left = table.concat(batch.places)
    call('ZREM', log, batch.logged)
    if left ~= string.rep(NOBODY, #batch.places) then
      call('ZADD', log, batch.base, left)
    else
      call('DEL', prefix .. 'b:' .. name)
    end
  end
end
