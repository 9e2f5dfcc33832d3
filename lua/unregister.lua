-- Remove a schedule, with its occurrences that have not begun.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id owner : owner '' removes whoever's it is, else only that App's
-- Returns NOT_FOUND | FOREIGN owner | REMOVED
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/limits.lua
-- @include lib/slots.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
-- @include lib/waiting.lua
local id, owner = ARGV[2], ARGV[3]

local cron = redis.call('HMGET', cron_key(id), 'task', 'owner', 'current')
if not cron[1] then return {'NOT_FOUND'} end
if owner ~= '' and cron[2] ~= owner then return {'FOREIGN', cron[2] or ''} end

local jobs = {}
for _, instant in ipairs(redis.call('HKEYS', history_key(id))) do jobs[occurrence_id(id, instant)] = true end
if cron[3] then jobs[cron[3]] = true end
redis.call('DEL', cron_key(id), held_key(id), history_key(id))
redis.call('ZREM', crons, id)
redis.call('SREM', schedules, id)
for job_id in pairs(jobs) do
  if is_live(job_id) and redis.call('EXISTS', lock_key(job_id)) == 0 then
    end_waiting(job_id, read_job(job_id), 'its schedule was removed')
  end
end
return {'REMOVED'}
