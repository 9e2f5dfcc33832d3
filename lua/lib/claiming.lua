-- Claiming: entries of the ready streams become runs, each under a lock and a fence.
-- Needs: partition, keys, ready, ending, limits, slots, delivering.

local function ends_unrun(id, job, entry)
  local key, expires = job.idempotency_key, whole(job.expires_ms)
  local state, reason
  if key and redis.call('EXISTS', done_key(key)) == 1 then
    state, reason = 'SUCCEEDED', 'its idempotency key was executed before'
  elseif job.cancel_requested then
    state, reason = 'CANCELLED', 'cancelled'
  elseif expires and now > due_ms(job, entry) + expires then
    state, reason = 'CANCELLED', 'expired'
  else
    return false
  end
  drop_entry(entry)
  redis.call('HSET', job_key(id), 'state', state, 'last_error', reason, 'finished_at', now_text)
  if state == 'CANCELLED' then free_key(id, key) else expire_key(id, key) end
  free_slot(id)
  expire_job(id, job.retention_ms)
  bump(stats, string.lower(state), 1)
  announce({id})
  return true
end

-- A foreign hand may add an entry twice, or one for nothing: the job's own entry is the only one that runs.
local function not_runnable(id, job, entry, entry_fields)
  if not job.task then
    bury_foreign(id, entry_fields, 'entry without a job record')
    drop_entry(entry)
    return true
  elseif job.entry ~= entry then
    drop_entry(entry)
    return true
  end
  -- A run begun before (a group made anew delivers its entry again) stays pending: recover settles it by the
  -- retry policy, once its lease has ended.
  return job.state == 'RUNNING' or ends_unrun(id, job, entry)
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

-- Appends runs to the answer, as {entry, id, fence, attempt, {field, value, ...}}. Returns how many jobs were parked.
local function claim_entries(entries, worker, lease_ms, answer)
  local parked = 0
  if #entries == 0 then return parked end
  local fence = take_fences(#entries)
  local started_at = now_text
  for index, found in ipairs(entries) do
    local entry, id = found[1], field(found[2], 'id')
    local job, flat = read_job(id)
    if not_runnable(id, job, entry, found[2]) then
      -- It is settled, or another's.
    elseif job.concurrency_key and not has_slot(id, job) then
      park(id, job, entry)
      parked = parked + 1
    else
      local own = text(fence + index)
      if redis.call('SET', lock_key(id), worker .. '#' .. own, 'NX', 'PX', lease_ms) then
        local attempt = text((whole(job.attempts) or 0) + 1)
        redis.call('HSET', job_key(id), 'state', 'RUNNING', 'attempts', attempt, 'started_at', started_at,
          'fence', own)
        if job.concurrency_key then hold(id, job.concurrency_key) end
        answer[#answer + 1] = {entry, id, own, attempt, flat}
      end
    end
  end
  return parked
end

-- In one call, so that it does not hold up the server.
local MOST_PARKED = 200

-- Claims the given entries and then new ones, `allowed` runs in all. Parked jobs do not stand in the way of those
-- behind them. Returns how many runs were added to the answer.
local function claim_up_to(allowed, entries, worker, lease_ms, turn, answer)
  local before, parked = #answer, 0
  repeat
    local left = allowed - (#answer - before) - #entries
    for _, found in ipairs(read_entries(worker, left, turn)) do entries[#entries + 1] = found end
    local parked_now = claim_entries(entries, worker, lease_ms, answer)
    entries, turn, parked = {}, '', parked + parked_now
  until parked_now == 0 or #answer - before >= allowed or parked >= MOST_PARKED
  if limits.concurrency or limits.rate then count_starts(answer, before, lease_ms) end
  return #answer - before
end
