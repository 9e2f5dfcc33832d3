-- Pause a schedule: nothing of it fires, what was written runs.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id
-- Returns NOT_FOUND | PAUSED
-- @include lib/partition.lua
-- @include lib/crons.lua
local id = ARGV[2]

local key = cron_key(id)
if redis.call('HEXISTS', key, 'task') == 0 then return {'NOT_FOUND'} end
redis.call('HSETNX', key, 'paused', now_text)
redis.call('ZADD', crons, '+inf', id)
return {'PAUSED'}
