-- Cancel a job: a waiting one ends now, a running one is asked to stop.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id
-- Returns NOT_FOUND | FINISHED state | CANCELLED | REQUESTED worker
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/ending.lua
-- @include lib/limits.lua
-- @include lib/slots.lua
local id = ARGV[2]

local job = redis.call('HMGET', job_key(id), 'task', 'state', 'entry', 'idempotency_key', 'retention_ms')
local state, entry = job[2] or 'PENDING', job[3] or ''
if not job[1] then return {'NOT_FOUND'} end
if state == 'SUCCEEDED' or state == 'DEAD' or state == 'CANCELLED' then return {'FINISHED', state} end

local lock = redis.call('GET', lock_key(id))
if lock then
  redis.call('HSET', job_key(id), 'cancel_requested', now_text)
  return {'REQUESTED', (string.gsub(lock, '#%d+$', ''))}
end
if entry ~= '' and not unpark(id, entry) then drop_entry(entry) end
redis.call('ZREM', scheduled, id)
redis.call('HSET', job_key(id), 'state', 'CANCELLED', 'last_error', 'cancelled', 'finished_at', now_text)
free_key(id, job[4])
expire_job(id, job[5] or 3600000)
redis.call('HINCRBY', stats, 'cancelled', 1)
free_slot(id)
announce({id})
return {'CANCELLED'}
