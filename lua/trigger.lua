-- Write occurrences that somebody asks for, beside the plan: one now, or those of a range of the past.
-- Unless the schedule allows overlap they wait for the one that runs, and run one after the other.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id note count [instant]... : instant '' is now
-- Returns NOT_FOUND | TRIGGERED [job what]... : what is WRITTEN, WAITS or KNOWN (its job is there already)
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
local id, note, count = ARGV[2], ARGV[3], tonumber(ARGV[4])

local cron = redis.call('HMGET', cron_key(id), 'task', 'overlap', 'current')
if not cron[1] then return {'NOT_FOUND'} end
local answer, waiting = {'TRIGGERED'}, {}
for _, instant in ipairs(redis.call('LRANGE', held_key(id), 0, -1)) do waiting[instant] = true end
local begun = cron[3] and is_live(cron[3]) or next(waiting) ~= nil

local function free_instant()
  local instant = now
  while waiting[text(instant)] or redis.call('EXISTS', job_key(occurrence_id(id, text(instant)))) == 1 do
    instant = instant + 1
  end
  return text(instant)
end

for index = 5, 4 + count do
  local instant = ARGV[index] == '' and free_instant() or ARGV[index]
  local job_id, what = occurrence_id(id, instant), 'WRITTEN'
  if waiting[instant] or redis.call('EXISTS', job_key(job_id)) == 1 then
    what = 'KNOWN'
  elseif begun and cron[2] ~= 'allow' then
    what = 'WAITS'
    hold_back(id, instant)
    waiting[instant] = true
  else
    write_occurrence(id, instant, '', note)
    begun = true
  end
  answer[#answer + 1] = job_id
  answer[#answer + 1] = what
end
return answer
