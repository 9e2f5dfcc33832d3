-- Read one job as it is at one instant.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id
-- Returns NOT_FOUND | FOUND next_run_at lock lock_ttl_ms now max_retries fields : the first two and
--   max_retries (what the task says) may be ''
-- @include lib/partition.lua
-- @include lib/keys.lua
local id = ARGV[2]

local fields = redis.call('HGETALL', job_key(id))
if #fields == 0 then return {'NOT_FOUND'} end
local score = redis.call('ZSCORE', scheduled, id) or ''
local lock = redis.call('GET', lock_key(id)) or ''
local task = redis.call('HGET', job_key(id), 'task') or ''
local known = redis.call('HGET', base .. 'tasks', task) or ''
return {'FOUND', score, lock, tostring(redis.call('PTTL', lock_key(id))), now_text, known, fields}
