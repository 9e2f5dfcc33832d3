-- Ask to be told (on the channel `ended`) when a job ends.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id until_ms : how long from now the question stands
-- Returns NOT_FOUND | ENDED | WATCHING
-- @include lib/partition.lua
-- @include lib/full.lua
-- @include lib/keys.lua
local id, until_ms = ARGV[2], tonumber(ARGV[3])

local job = redis.call('HMGET', job_key(id), 'task', 'state')
if not job[1] then return {'NOT_FOUND'} end
if job[2] == 'SUCCEEDED' or job[2] == 'DEAD' or job[2] == 'CANCELLED' then return {'ENDED'} end
redis.call('ZADD', base .. 'waiting', text(now + until_ms), id)
return {'WATCHING'}
