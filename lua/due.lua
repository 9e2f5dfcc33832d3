-- Read the schedules that are due, now or soon, as far as deciding needs them.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms ahead_ms limit
-- Returns DUE now [id next fingerprint values]... : values: what follows the fingerprint in the HMGET below, '' for
--   what is not said; next '' where it is lost
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/crons.lua
local ahead_ms, limit = ARGV[2], ARGV[3]

local answer, until_text = {'DUE', now_text}, text(now + tonumber(ahead_ms))
for _, id in ipairs(redis.call('ZRANGEBYSCORE', crons, '-inf', until_text, 'LIMIT', 0, limit)) do
  local cron = redis.call('HMGET', cron_key(id), 'task', 'next', 'fingerprint', 'cron', 'every', 'tz', 'dst_gap', 'dst_fold',
    'overlap', 'misfire', 'misfire_limit', 'misfire_window', 'jitter', 'start', 'end')
  if cron[1] then
    local values = {}
    for index = 4, 15 do values[#values + 1] = cron[index] or '' end
    for _, value in ipairs({id, cron[2] or '', cron[3] or '', values}) do answer[#answer + 1] = value end
  else
    redis.call('ZREM', crons, id)
    redis.call('SREM', schedules, id)
  end
end
return answer
