-- Arm what has a definition and is missing from the set of next instants, and begin what waits for nothing any more.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms
-- Returns REARMED count
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua

if redis.call('SCARD', schedules) == redis.call('ZCARD', crons) then return {'REARMED', '0'} end
local rearmed = 0
for _, id in ipairs(redis.call('SMEMBERS', schedules)) do
  if not redis.call('ZSCORE', crons, id) then
    local cron = redis.call('HMGET', cron_key(id), 'task', 'next', 'paused')
    if not cron[1] then
      redis.call('SREM', schedules, id)
    else
      -- One whose next instant is lost is due now: the scheduler computes it.
      local next_fire = (cron[2] == 'never' or whole(cron[2])) and cron[2] or now_text
      redis.call('ZADD', crons, (cron[3] or next_fire == 'never') and '+inf' or next_fire, id)
      start_held(id)
      rearmed = rearmed + 1
    end
  end
end
return {'REARMED', text(rearmed)}
