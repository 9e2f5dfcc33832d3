-- Count what a partition holds, at one instant.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms
-- Returns MEASURED scheduled ready running dead oldest_ready_age_ms counters limits due_in_ms : counters is the stats
--   hash, limits that of the limits, both flat; due_in_ms is '' where nothing is scheduled, and negative where nobody has
--   moved a due job yet, which is as old as it is late
-- @include lib/partition.lua
-- @include lib/keys.lua
local ready, running, oldest = 0, 0, nil

local function look_at(priority, group)
  local named = {pending = 0, ['last-delivered-id'] = '0-0'}
  for index = 1, #group, 2 do named[group[index]] = group[index + 1] end
  running = running + named.pending
  ready = ready + redis.call('XLEN', ready_key(priority)) - named.pending
  local first = redis.call('XRANGE', ready_key(priority), '(' .. named['last-delivered-id'], '+', 'COUNT', 1)[1]
  if first then
    local added = tonumber(string.match(first[1], '^%d+'))
    oldest = math.min(oldest or added, added)
  end
end

for priority = 0, 9 do
  -- Before the first worker came there is no group, and all waits.
  look_at(priority, workers_group(priority))
end
local due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2])
due = due and math.floor(math.max(due, 0))
if due and due <= now then oldest = math.min(oldest or due, due) end
return {'MEASURED', tostring(redis.call('ZCARD', scheduled)), tostring(ready), tostring(running),
  tostring(redis.call('XLEN', dead)), text(oldest and math.max(now - oldest, 0) or 0), redis.call('HGETALL', stats),
  redis.call('HGETALL', base .. 'limits'), due and text(math.min(due, 2 ^ 52) - now) or ''}
