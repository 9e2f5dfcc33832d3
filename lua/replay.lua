-- Put dead jobs back to work: payload and id are kept, attempts start again.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms from to limit count [id]... : ids if count > 0, else a page of the dead stream from..to
-- Returns REPLAYED last [id what]... : last is the last entry looked at, '' at the end; what is OK, NOT_FOUND,
--   NO_RECORD (an entry without a job cannot run) or the id of the job that holds the key now
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/graves.lua
local from, to, limit, count = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

-- The retention of an earlier end must not take a job that is alive again.
local function revive(id, grave, job)
  local replays, past = (whole(job.replays) or 0) + 1, (whole(job.past_attempts) or 0) + (whole(job.attempts) or 0)
  if job.idempotency_key then redis.call('SET', idem_key(job.idempotency_key), id) end
  redis.call('PERSIST', job_key(id))
  redis.call('HDEL', job_key(id), 'finished_at', 'unknown_since', 'cancel_requested', 'progress')
  push_ready(id, job.priority, 'due_at', now_text, 'state', 'PENDING', 'attempts', '0',
    'replays', text(replays), 'past_attempts', text(past))
  redis.call('XDEL', dead, grave)
end

local function replay(id, grave)
  local job = grave and dead_job(id) or nil
  if not job or job.entry ~= 'dead/' .. grave then return grave and 'NO_RECORD' or 'NOT_FOUND' end
  local key = job.idempotency_key
  local holder = key and redis.call('GET', idem_key(key))
  if holder and holder ~= id and redis.call('EXISTS', job_key(holder), done_key(key)) > 0 then return holder end
  revive(id, grave, job)
  return 'OK'
end

local answer = {'REPLAYED'}
local graves, last = chosen_graves(from, to, limit, count)
answer[2] = last
for _, found in ipairs(graves) do
  answer[#answer + 1] = found[1]
  answer[#answer + 1] = replay(found[1], found[2])
end
return answer
