-- Mend an idempotency key or an executed mark that would never go: looked at anew.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms kind key : kind is idem or done
-- Returns SOUND | MENDED what
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
local kind, key = ARGV[2], ARGV[3]

local name = kind == 'done' and done_key(key) or idem_key(key)
local holder = redis.call('GET', name)
if not holder or redis.call('PTTL', name) ~= -1 then return {'SOUND'} end
if kind == 'done' then
  redis.call('PEXPIRE', name, 86400000)
  return {'MENDED', 'lets the executed mark expire in a day'}
end
local job = redis.call('HMGET', job_key(holder), 'task', 'state', 'idempotency_key')
local ended = job[2] == 'SUCCEEDED' or job[2] == 'DEAD' or job[2] == 'CANCELLED'
if job[1] and not ended and job[3] == key then return {'SOUND'} end
if job[1] and ended then
  if redis.call('EXISTS', done_key(key)) == 1 then expire_key(holder, key) else redis.call('DEL', name) end
  return {'MENDED', 'freed the key of a job that has ended'}
end
redis.call('DEL', name)
return {'MENDED', job[1] and 'freed a key that its job does not hold' or 'freed a key that names no job'}
