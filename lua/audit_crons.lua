-- Look at schedules: each with all that says when it is due, at one instant. Reads only.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms count [id]...
-- Returns LOOKED [id task next paused score listed]... : '' for what is not there
-- @include lib/partition.lua
-- @include lib/crons.lua
local count = tonumber(ARGV[2])

local answer = {'LOOKED'}
for index = 3, 2 + count do
  local id = ARGV[index]
  local cron = redis.call('HMGET', cron_key(id), 'task', 'next', 'paused')
  local score = redis.call('ZSCORE', crons, id) or ''
  local listed = tostring(redis.call('SISMEMBER', schedules, id))
  for _, value in ipairs({id, cron[1] or '', cron[2] or '', cron[3] or '', score, listed}) do
    answer[#answer + 1] = value
  end
end
return answer
