-- Ending what waits.
-- Needs: partition, keys, ready, limits, slots, occurrences, ending.

-- End a job that no worker runs, wherever it waits.
local function end_waiting(id, job, reason)
  local entry = job.entry or ''
  if entry ~= '' and not unpark(id, entry) then drop_entry(entry) end
  redis.call('ZREM', scheduled, id)
  redis.call('HSET', job_key(id), 'state', 'CANCELLED', 'last_error', reason, 'finished_at', now_text)
  free_key(id, job.idempotency_key)
  expire_job(id, job.retention_ms)
  bump(stats, 'cancelled', 1)
  free_slot(id)
  announce({id})
end
