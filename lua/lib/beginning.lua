-- Beginning runs: each under a lock and a fence, and only where there is no reason against it.
-- Needs: partition, keys, ready.

-- Returns the state in which a job ends without a run, and why; nil where it may run.
local function unrun(job, entry)
  local key, expires = job.idempotency_key, whole(job.expires_ms)
  local state, reason
  if key and redis.call('EXISTS', done_key(key)) == 1 then
    state, reason = 'SUCCEEDED', 'its idempotency key was executed before'
  elseif job.cancel_requested then
    state, reason = 'CANCELLED', 'cancelled'
  elseif expires and now > due_ms(job, entry) + expires then
    state, reason = 'CANCELLED', 'expired'
  end
  return state, reason
end

-- A replica that is made the master may have missed the last claims, and a server may come back with an empty memory:
-- even then no fence may come twice. So fences follow the clock, in thousandths of a ms, and the counter where that is
-- ahead. That holds while two masters' clocks differ by less than a failover takes. Up to 2^52 Lua counts without a gap;
-- what a foreign hand has put beyond it, or anything but a number, counts for nothing.
local function take_fences(count)
  local counter, most = base .. 'fence', 2 ^ 52
  local last, kept = math.min(now * 1000, most), tonumber(redis.call('GET', counter) or '')
  if kept and kept > last and kept < most then last = kept end
  redis.call('SET', counter, text(last + count))
  return last
end

-- Adds the run to the answer, as {entry, id, fence, attempt, {field, value, ...}}, and what is given besides to the
-- job's hash. Returns false where the job is under somebody's lock.
local function begin(id, job, flat, entry, fence, worker, lease_ms, answer, ...)
  if not redis.call('SET', lock_key(id), worker .. '#' .. fence, 'NX', 'PX', lease_ms) then return false end
  local attempt = text((whole(job.attempts) or 0) + 1)
  redis.call('HSET', job_key(id), 'state', 'RUNNING', 'attempts', attempt, 'started_at', now_text, 'fence', fence, ...)
  answer[#answer + 1] = {entry, id, fence, attempt, flat}
  return true
end
