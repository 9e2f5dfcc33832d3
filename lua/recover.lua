-- Take back what dead workers hold: a run counts as a failed attempt, an entry never started does not.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms worker idle_ms limit default_max_retries
--   worker: '' looks at entries idle for idle_ms whose lock ran out; a name takes back all that it holds (it was seen dead)
-- Returns RECOVERED [id what worker]... : what is RETRY, DEAD, CANCELLED or RETURNED
-- @include lib/partition.lua
-- @include lib/full.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
-- @include lib/pending.lua
-- @include lib/limits.lua
-- @include lib/slots.lua
local worker, idle_ms, limit, default_max_retries = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local function is_lost(id)
  local lock = redis.call('GET', lock_key(id))
  return not lock or (worker ~= '' and string.sub(lock, 1, #worker + 1) == worker .. '#')
end

local function max_retries(job)
  return whole(job.max_retries) or whole(redis.call('HGET', base .. 'tasks', job.task)) or default_max_retries
end

local function end_lost_run(id, job, priority)
  if job.cancel_requested then
    redis.call('HSET', job_key(id), 'state', 'CANCELLED', 'finished_at', now_text, 'last_error', 'cancelled')
    free_key(id, job.idempotency_key)
    expire_job(id, job.retention_ms)
    return 'CANCELLED'
  elseif (whole(job.attempts) or 1) > max_retries(job) then
    bury(id, job.task, 'worker lost', job.attempts)
    free_key(id, job.idempotency_key)
    return 'DEAD'
  end
  -- Due at once: the time it waited for the lease is delay enough.
  push_ready(id, priority, 'due_at', now_text, 'state', 'PENDING', 'last_error', 'worker lost')
  return 'RETRY'
end

local function take_back(id, job, entry, priority)
  drop_entry(entry)
  redis.call('DEL', lock_key(id))
  free_places({id})
  local what = job.state == 'RUNNING' and end_lost_run(id, job, priority)
  if what then free_slot(id) return what end
  push_ready(id, priority, 'due_at', text(due_ms(job, entry)))
  return 'RETURNED'
end

local answer, ended, found = {'RECOVERED'}, {}, 0

local function look_at(entry, consumer, priority)
  local id, job = job_of_entry(entry)
  if not job or not is_lost(id) then return end
  local what = take_back(id, job, entry, priority)
  found = found + 1
  bump(stats, what == 'RETURNED' and 'returned' or 'recovered', 1)
  if what == 'DEAD' or what == 'CANCELLED' then
    bump(stats, string.lower(what), 1)
    ended[#ended + 1] = id
  end
  for _, value in ipairs({id, what, consumer}) do answer[#answer + 1] = value end
end

for priority = 0, 9 do
  -- Live runs of workers with a longer lease may fill a page: the look goes on behind them, within bounds.
  local from, pages = '-', 0
  repeat
    local page = pending_entries(priority, worker, idle_ms, limit, from)
    for _, pending in ipairs(page) do look_at(priority .. '/' .. pending[1], pending[2], priority) end
    if #page > 0 then from = '(' .. page[#page][1] end
    pages = pages + 1
  until #page < limit or found >= limit or pages == 20
end
announce(ended)
if found > 0 then tell_of_places() end
return answer
