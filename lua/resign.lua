-- Give up a partition's lease, if it is still this scheduler's, so that another takes over at once.
-- KEYS: base scheduled dead stats lease
-- ARGV: now_ms owner
-- Returns RESIGNED | NOT_OWNER
local lease = KEYS[5]
local owner = ARGV[2]

if redis.call('GET', lease) ~= owner then return {'NOT_OWNER'} end
redis.call('DEL', lease)
return {'RESIGNED'}
