-- Outcomes: what each makes of a job. What can be done once for a whole batch is gathered.
-- Needs: partition, keys, ready, ending.

local acknowledged, counted, ended, settled, delayed_ids, delayed = {}, {}, {}, {}, {}, false

local function acknowledge(entry)
  local priority, stream_id = split_entry(entry)
  local stream_ids = acknowledged[priority]
  if stream_ids then stream_ids[#stream_ids + 1] = stream_id else acknowledged[priority] = {stream_id} end
end

local function counts(name) counted[name] = (counted[name] or 0) + 1 end

local counter_names = {SUCCEEDED = 'succeeded', CANCELLED = 'cancelled', DEAD = 'dead', RELEASED = 'released',
  UNKNOWN = 'unknown'}

local function wait_again(id, entry, delay_ms, ...)
  local priority, due = split_entry(entry), now + tonumber(delay_ms)
  if due <= now then return push_ready(id, priority, 'due_at', text(due), 'state', 'PENDING', select(3, ...)) end
  redis.call('ZADD', scheduled, text(due), id)
  redis.call('HSET', job_key(id), 'entry', '', ...)
  delayed_ids[id], delayed = true, true
end

local outcomes = {}

function outcomes.SUCCEEDED(id, _, result, retention_ms, key)
  if key ~= '' then keep_key(id, key) end
  if result == '' then
    redis.call('HSET', job_key(id), 'state', 'SUCCEEDED', 'finished_at', now_text)
  else
    redis.call('HSET', job_key(id), 'state', 'SUCCEEDED', 'finished_at', now_text, 'result', result)
  end
  expire_job(id, retention_ms)
  ended[#ended + 1] = id
end

function outcomes.CANCELLED(id, entry, reason, retention_ms, key)
  redis.call('HSET', job_key(id), 'state', 'CANCELLED', 'finished_at', now_text, 'last_error', reason)
  free_key(id, key)
  expire_job(id, retention_ms)
  ended[#ended + 1] = id
end

function outcomes.DEAD(id, entry, reason, _, key)
  local job = redis.call('HMGET', job_key(id), 'task', 'attempts')
  -- A foreign hand deleted the record under the run.
  if not job[1] then return bury_foreign(id, {'raw', id}, reason) end
  bury(id, job[1], reason, job[2])
  free_key(id, key)
  ended[#ended + 1] = id
end

function outcomes.RETRY(id, entry, reason, delay_ms)
  counts('failed')
  -- It ran, so a worker knew the task: a later grace time starts anew.
  redis.call('HDEL', job_key(id), 'unknown_since')
  wait_again(id, entry, delay_ms, 'state', 'FAILED', 'last_error', reason)
end

function outcomes.RELEASED(id, entry, _, delay_ms)
  return_attempt(id)
  wait_again(id, entry, delay_ms, 'state', 'PENDING')
end

-- Unknown is not poison: another worker may know the task, so only the grace time ends it.
function outcomes.UNKNOWN(id, entry, reason, delay_ms, grace_ms)
  return_attempt(id)
  local job = redis.call('HMGET', job_key(id), 'unknown_since', 'idempotency_key')
  local since = whole(job[1])
  if not since then redis.call('HSET', job_key(id), 'unknown_since', now_text) end
  if now - (since or now) >= tonumber(grace_ms) then
    outcomes.DEAD(id, entry, reason, '', job[2])
    return 'DEAD'
  end
  wait_again(id, entry, delay_ms, 'state', 'PENDING')
end
