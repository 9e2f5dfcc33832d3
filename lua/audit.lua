-- Look at jobs: each with all that says where it is, at one instant. Reads only.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms count [id key entry_count entry...]...
--   key: the idempotency key to look up, '' for the job's own
--   entry: `priority/stream id`, `dead/stream id` or `parked/concurrency key`, where the id was seen; the job's own
--   entry is looked at anyway
-- Returns LOOKED [fields facts places]... : fields and facts flat, names and values; a place is entry, what is
--   there (undelivered, pending, hollow: pending without an entry, left: acknowledged and not deleted, dead, parked,
--   gone),
--   the id in it and the consumer that holds it
-- @include lib/partition.lua
-- @include lib/keys.lua
local count = tonumber(ARGV[2])

local looked_at = {'task', 'state', 'entry', 'attempts', 'fence', 'max_retries', 'idempotency_key', 'concurrency_key',
  'schedule_id', 'scheduled_for', 'due_at', 'priority', 'expires_ms', 'timeout_ms', 'retention_ms',
  'idempotency_ttl_ms', 'concurrency_limit', 'unknown_since', 'created_at', 'replays'}

local function was_delivered(priority, stream_id)
  local last = field(workers_group(priority), 'last-delivered-id')
  if last == '' then return false end
  local newer = redis.call('XREVRANGE', ready_key(priority), stream_id, '(' .. last, 'COUNT', 1)[1]
  return not (newer and newer[1] == stream_id)
end

local function look_at_ready(priority, stream_id)
  local found = redis.call('XRANGE', ready_key(priority), stream_id, stream_id)[1]
  local id = found and field(found[2], 'id') or ''
  local pending = redis.pcall('XPENDING', ready_key(priority), 'workers', stream_id, stream_id, 1)
  if not pending.err and pending[1] then return found and 'pending' or 'hollow', id, pending[1][2] end
  if not found then return 'gone', '', '' end
  return was_delivered(priority, stream_id) and 'left' or 'undelivered', id, ''
end

local function look_at_entry(entry, id)
  if string.sub(entry, 1, 7) == 'parked/' then
    return redis.call('ZSCORE', base .. 'parked:' .. string.sub(entry, 8), id) and 'parked' or 'gone', id, ''
  end
  if string.sub(entry, 1, 5) ~= 'dead/' then return look_at_ready(split_entry(entry)) end
  local stream_id = string.sub(entry, 6)
  local found = redis.call('XRANGE', dead, stream_id, stream_id)[1]
  return found and 'dead' or 'gone', found and field(found[2], 'id') or '', ''
end

local function look_at_job(id, key, entries)
  local fields, facts, places = {}, {}, {}
  local values = redis.call('HMGET', job_key(id), unpack(looked_at))
  for index, name in ipairs(looked_at) do
    if values[index] then
      fields[#fields + 1] = name
      fields[#fields + 1] = values[index]
    end
  end
  local own = field(fields, 'entry')
  if own ~= '' then entries[own] = true end
  if key == '' then key = field(fields, 'idempotency_key') end
  for name, value in pairs({
    ttl_ms = text(redis.call('PTTL', job_key(id))), score = redis.call('ZSCORE', scheduled, id) or '',
    lock = redis.call('GET', lock_key(id)) or '', holder = redis.call('GET', idem_key(key)) or '',
    holder_ttl_ms = text(redis.call('PTTL', idem_key(key))), slot = redis.call('HGET', base .. 'holding', id) or '',
  }) do
    facts[#facts + 1] = name
    facts[#facts + 1] = value
  end
  for entry in pairs(entries) do places[#places + 1] = {entry, look_at_entry(entry, id)} end
  return fields, facts, places
end

local answer, cursor = {'LOOKED'}, 3
for _ = 1, count do
  local id, key, entry_count, entries = ARGV[cursor], ARGV[cursor + 1], tonumber(ARGV[cursor + 2]), {}
  for index = cursor + 3, cursor + 2 + entry_count do entries[ARGV[index]] = true end
  cursor = cursor + 3 + entry_count
  for _, part in ipairs({look_at_job(id, key, entries)}) do answer[#answer + 1] = part end
end
return answer
