-- Read the schedules that are due, as far as deciding needs them.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms limit
-- Returns DUE now [id next values]... : values: what follows next in the HMGET below, '' for what is not
--   said; next '' where it is lost
-- @include lib/partition.lua
-- @include lib/keys.lua
local limit = ARGV[2]

local answer = {'DUE', now_text}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', base .. 'crons', '-inf', now_text, 'LIMIT', 0, limit)) do
  local cron = redis.call('HMGET', base .. 'cron:' .. id, 'task', 'next', 'cron', 'every', 'tz', 'dst_gap', 'dst_fold',
    'overlap', 'misfire', 'misfire_limit', 'misfire_window', 'jitter', 'start', 'end')
  if cron[1] then
    local values = {}
    for index = 3, 14 do values[#values + 1] = cron[index] or '' end
    for _, value in ipairs({id, cron[2] or '', values}) do answer[#answer + 1] = value end
  else
    redis.call('ZREM', base .. 'crons', id)
    redis.call('SREM', base .. 'schedules', id)
  end
end
return answer
