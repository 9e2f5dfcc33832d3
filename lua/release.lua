-- Hand back what a worker holds, unharmed: all but the runs it names. No attempt is used.
-- For a worker that stops, and for one whose answer to a claim was lost on the way.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms worker leave count [fence]... : leave '1' removes the consumer too, once nothing is pending
-- Returns RELEASED [id]...
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
local worker, leave, count = ARGV[2], ARGV[3], tonumber(ARGV[4])

local kept, answer = {}, {'RELEASED'}
for index = 5, 4 + count do kept[ARGV[index]] = true end

-- A run is named by its fence: the same job may be pending here once more, claimed by a call whose answer was lost.
local function hand_back(id, job, entry, priority)
  local lock = redis.call('GET', lock_key(id))
  if lock and string.sub(lock, 1, #worker + 1) ~= worker .. '#' then return end
  if job.state == 'RUNNING' and kept[lock and string.sub(lock, #worker + 2) or job.fence or ''] then return end
  drop_entry(entry)
  if job.state == 'RUNNING' then
    redis.call('DEL', lock_key(id))
    return_attempt(id)
  end
  push_ready(id, priority, 'due_at', text(due_ms(job, entry)), 'state', 'PENDING')
  free_places({id})
  if job.state == 'RUNNING' then free_slot(id) end
  answer[#answer + 1] = id
end

for priority = 0, 9 do
  local pending = pending_entries(priority, worker, '0', 10000)
  for _, found in ipairs(pending) do
    local entry = priority .. '/' .. found[1]
    local id, job = job_of_entry(entry)
    if job then hand_back(id, job, entry, priority) end
  end
  if leave == '1' and #pending_entries(priority, worker, '0', 1) == 0 then
    redis.pcall('XGROUP', 'DELCONSUMER', ready_key(priority), 'workers', worker)
  end
end
if #answer > 1 then tell_of_places() end
return answer
