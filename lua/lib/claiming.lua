-- Claiming: entries of the ready streams, and due jobs behind them, become runs.
-- Needs: partition, keys, ready, ending, limits, slots, delivering, beginning, taking.

local function ends_unrun(id, job, entry)
  local state, reason = unrun(job, entry)
  if not state then return false end
  drop_entry(entry)
  redis.call('HSET', job_key(id), 'state', state, 'last_error', reason, 'finished_at', now_text)
  if state == 'CANCELLED' then free_key(id, job.idempotency_key) else expire_key(id, job.idempotency_key) end
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

-- Returns how many jobs are out of the way without a run: parked or ended.
local function claim_entries(entries, worker, lease_ms, answer)
  local passed = 0
  if #entries == 0 then return passed end
  local fence = take_fences(#entries)
  for index, found in ipairs(entries) do
    local entry, id = found[1], field(found[2], 'id')
    local job, flat = read_job(id)
    if not_runnable(id, job, entry, found[2]) then
      passed = passed + 1
    elseif job.concurrency_key and not has_slot(id, job) then
      park(id, job, entry)
      passed = passed + 1
    elseif begin(id, job, flat, entry, text(fence + index), worker, lease_ms, answer) and job.concurrency_key then
      hold(id, job.concurrency_key)
    end
  end
  return passed
end

-- In one call, so that it does not hold up the server.
local MOST_PASSED = 200

-- Claims the given entries, then new ones, then due jobs that nobody has moved yet: `allowed` runs in all. What ends
-- unrun or is parked does not stand in the way of those behind it. Where it comes to fewer, the gate, which stands `at`
-- in the answer, holds up nothing. Returns how many runs were added to the answer.
local function claim_up_to(allowed, entries, worker, lease_ms, turn, answer, at)
  local first, passed, runs_of_due = #answer, 0, {}
  repeat
    local left = allowed - (#answer - first) - #runs_of_due - #entries
    local fresh = read_entries(worker, left, turn)
    for _, found in ipairs(fresh) do entries[#entries + 1] = found end
    if #fresh < left then
      for _, found in ipairs(take_due(left - #fresh, worker, lease_ms, runs_of_due)) do entries[#entries + 1] = found end
    end
    local passed_now = claim_entries(entries, worker, lease_ms, answer)
    entries, turn, passed = {}, '', passed + passed_now
  until passed_now == 0 or #answer - first + #runs_of_due >= allowed or passed >= MOST_PASSED
  for _, run in ipairs(runs_of_due) do answer[#answer + 1] = run end
  local claimed = #answer - first
  if limits.concurrency or limits.rate then count_starts(answer, first, lease_ms) end
  if claimed < allowed then answer[at], answer[at + 1] = passed >= MOST_PASSED and 'MORE' or '', '0' end
  return claimed
end
