-- Ending a job: its key, its waiters, its grave, and the occurrence that waited for its end.
-- Needs: partition, keys, ready, occurrences.

local function free_key(id, key)
  if key and key ~= '' and redis.call('GET', idem_key(key)) == id then
    redis.call('DEL', idem_key(key))
  end
end

-- The executed mark outlives the job's hash, so a second delivery of the key ends without running.
local function keep_key(id, key)
  local ttl_ms = whole(redis.call('HGET', job_key(id), 'idempotency_ttl_ms')) or 86400000
  redis.call('SET', done_key(key), id, 'PX', text(math.max(ttl_ms, 1)))
  -- A job that ended dead lost its key; another may hold it by the time a late success is taken.
  local holder = redis.call('GET', idem_key(key))
  if not holder or holder == id then
    redis.call('SET', idem_key(key), id, 'PX', text(math.max(ttl_ms, 1)))
  end
end

-- What ends unrun, since its key was executed before, holds the key while the executed mark stands, no longer.
local function expire_key(id, key)
  if redis.call('GET', idem_key(key)) ~= id then return end
  redis.call('PEXPIRE', idem_key(key), math.max(redis.call('PTTL', done_key(key)), 1))
end

local function expire_job(id, retention_ms)
  local ms = whole(retention_ms) or 3600000
  if ms > 0 then
    redis.call('PEXPIRE', job_key(id), text(ms))
  else
    redis.call('DEL', job_key(id))
  end
end

local function bury(id, task, reason, attempts)
  local grave = redis.call('XADD', dead, '*', 'id', id, 'task', task, 'error', reason, 'attempts',
    text(whole(attempts) or 0))
  redis.call('HSET', job_key(id), 'state', 'DEAD', 'entry', 'dead/' .. grave, 'last_error', reason,
    'finished_at', now_text)
end

-- An entry without a job's record is kept as it came: it may be all that is left of somebody's job.
-- Only one too long for `unpack` is cut; else it would stop every claim and recovery here for ever.
local function bury_foreign(id, entry_fields, reason)
  redis.call('XADD', dead, '*', 'id', '', 'task', '', 'error', reason, 'attempts', '0',
    unpack(entry_fields, 1, math.min(#entry_fields, 1000)))
  redis.call('DEL', job_key(id))
end

local function announce(ids)
  for _, id in ipairs(ids) do
    if string.find(id, '-', 1, true) then occurrence_ended(id) end
  end
  if #ids == 0 or redis.call('EXISTS', base .. 'waiting') == 0 then return end
  for _, id in ipairs(ids) do
    if redis.call('ZREM', base .. 'waiting', id) == 1 then redis.call('PUBLISH', base .. 'ended', id) end
  end
end
