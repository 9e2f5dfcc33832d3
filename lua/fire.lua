-- Fire what is due of a schedule, if it is still as the scheduler read it, and set its next instant.
-- The overlap is decided here. What one call fires belongs together: behind the first the others run one by one.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id read_next fingerprint next_fire missed count [instant start_at note]...
--   fingerprint: '' does not look; next_fire: 'never' when the schedule has come to its end; start_at: '' at once, else ms since the epoch
-- Returns GONE | PAUSED | MOVED next | FIRED [worker job]... : the runs that are asked to stop, and who runs them
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/limits.lua
-- @include lib/slots.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
-- @include lib/waiting.lua
local id, read_next, fingerprint, next_fire = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local missed, count = tonumber(ARGV[6]), tonumber(ARGV[7])

local cron = redis.call('HMGET', cron_key(id), 'task', 'next', 'paused', 'overlap', 'current', 'fingerprint')
local overlap, current = cron[4] or 'skip', cron[5]
if not cron[1] then
  redis.call('ZREM', crons, id)
  return {'GONE'}
end
if cron[3] then
  redis.call('ZADD', crons, '+inf', id)
  return {'PAUSED'}
end
local is_as_read = (cron[2] or '') == read_next and (fingerprint == '' or cron[6] == fingerprint)
if not is_as_read then return {'MOVED', cron[2] or ''} end

redis.call('HSET', cron_key(id), 'next', next_fire)
redis.call('ZADD', crons, next_fire == 'never' and '+inf' or next_fire, id)
redis.call('SADD', schedules, id)
if missed > 0 then bump(cron_key(id), 'missed', missed) end
if count == 0 then return {'FIRED'} end

local answer = {'FIRED'}
local function ask_to_stop(job_id)
  local job = read_job(job_id)
  local lock = redis.call('GET', lock_key(job_id))
  if not lock then return end_waiting(job_id, job, 'a newer occurrence is due') end
  redis.call('HSET', job_key(job_id), 'cancel_requested', now_text)
  answer[#answer + 1] = (string.gsub(lock, '#%d+$', ''))
  answer[#answer + 1] = job_id
end

if redis.call('EXISTS', held_key(id)) == 1 then
  start_held(id)
  current = redis.call('HGET', cron_key(id), 'current')
end
local was_live = current and is_live(current)
if was_live and overlap == 'cancel' then
  drop_held(id)
  ask_to_stop(current)
  was_live = is_live(current)
end

local function overlapping(instant)
  if overlap == 'skip' and was_live then
    bump(cron_key(id), 'skipped', 1)
    return remember(id, instant, 'skipped, the one before still ran')
  end
  if was_live and overlap ~= 'wait' then drop_held(id) end
  hold_back(id, instant)
end

local begun = was_live
for index = 8, 7 + count * 3, 3 do
  local instant, start_at, note = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  if begun and overlap ~= 'allow' then
    overlapping(instant)
  else
    local _, fresh = write_occurrence(id, instant, start_at, note)
    begun = begun or fresh
  end
end
return answer
