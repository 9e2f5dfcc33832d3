-- Mend a schedule whose definition, next instant and listing disagree: the definition decides.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id
-- Returns SOUND | MENDED [what]...
-- @include lib/partition.lua
-- @include lib/crons.lua
local id = ARGV[2]

local cron = redis.call('HMGET', cron_key(id), 'task', 'next', 'paused')
local answer = {'MENDED'}
if not cron[1] then
  local gone = redis.call('ZREM', crons, id) + redis.call('SREM', schedules, id)
  if gone > 0 then answer[2] = 'taken off the list: it has no definition' end
else
  if redis.call('SADD', schedules, id) == 1 then answer[#answer + 1] = 'listed again' end
  local next_fire = (cron[3] or cron[2] == 'never') and 'inf' or whole(cron[2]) and cron[2] or now_text
  local score = redis.call('ZSCORE', crons, id)
  if not score or tonumber(score) ~= tonumber(next_fire) then
    redis.call('ZADD', crons, next_fire, id)
    if next_fire ~= 'inf' then redis.call('PUBLISH', base .. 'wake', next_fire) end
    answer[#answer + 1] = 'armed again, for ' .. next_fire
  end
end
if #answer == 1 then return {'SOUND'} end
return answer
