-- Let a paused schedule go on, from its next instant on; what fell into the pause is not missed.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id fingerprint next_fire : fingerprint is that of the definition whose next instant this is
-- Returns NOT_FOUND | NOT_PAUSED | CHANGED | RESUMED
-- @include lib/partition.lua
-- @include lib/crons.lua
local id, fingerprint, next_fire = ARGV[2], ARGV[3], ARGV[4]

local key = cron_key(id)
local cron = redis.call('HMGET', key, 'task', 'paused', 'fingerprint')
if not cron[1] then return {'NOT_FOUND'} end
if not cron[2] then return {'NOT_PAUSED'} end
if (cron[3] or '') ~= fingerprint then return {'CHANGED'} end
redis.call('HDEL', key, 'paused')
redis.call('HSET', key, 'next', next_fire)
redis.call('ZADD', crons, next_fire == 'never' and '+inf' or next_fire, id)
if next_fire ~= 'never' then redis.call('PUBLISH', base .. 'wake', next_fire) end
return {'RESUMED'}
