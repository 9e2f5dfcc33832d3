-- Cancel a job: a waiting one ends now, a running one is asked to stop.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id
-- Returns NOT_FOUND | FINISHED state | CANCELLED | REQUESTED worker
-- @include lib/partition.lua
-- @include lib/full.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/limits.lua
-- @include lib/slots.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
-- @include lib/waiting.lua
local id = ARGV[2]

local job = read_job(id)
local state = job.state or 'PENDING'
if not job.task then return {'NOT_FOUND'} end
if state == 'SUCCEEDED' or state == 'DEAD' or state == 'CANCELLED' then return {'FINISHED', state} end

local lock = redis.call('GET', lock_key(id))
if lock then
  redis.call('HSET', job_key(id), 'cancel_requested', now_text)
  return {'REQUESTED', (string.gsub(lock, '#%d+$', ''))}
end
end_waiting(id, job, 'cancelled')
return {'CANCELLED'}
