-- Set or remove limits of a partition: paused, concurrency, rate, rate_ms and totals; and tell its workers.
-- A new partition of a queue with limits is held: it starts nothing before the older ones, so many as `held` says, are
-- down to their new shares, nor before held_until, when their starts of before are past the rate's span.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms count [name value]... : value '' removes; held_until is '+n', n ms from now
-- Returns CONFIGURED
-- @include lib/partition.lua
-- @include lib/full.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
-- @include lib/pending.lua
local count = tonumber(ARGV[2])

local limits_key, running = base .. 'limits', base .. 'running'
local named = {}

-- What runs already counts too, from the first moment.
local function count_running()
  for priority = 0, 9 do
    for _, pending in ipairs(pending_entries(priority, '', '0', 10000)) do
      local id = job_of_entry(priority .. '/' .. pending[1])
      local lease_ms = id and redis.call('PTTL', lock_key(id)) or 0
      if lease_ms > 0 then
        redis.call('ZADD', running, text(now + lease_ms), id)
        if redis.call('PTTL', running) < lease_ms then redis.call('PEXPIRE', running, lease_ms) end
      end
    end
  end
end

for index = 3, 2 + count * 2, 2 do
  local name, value = ARGV[index], ARGV[index + 1]
  if string.sub(value, 1, 1) == '+' then value = text(now + tonumber(string.sub(value, 2))) end
  named[name] = value
  if value == '' then redis.call('HDEL', limits_key, name) else redis.call('HSET', limits_key, name, value) end
end
if named.concurrency then redis.call('DEL', running) end
if named.concurrency and named.concurrency ~= '' then count_running() end
if named.rate == '' then redis.call('DEL', base .. 'started') end
local is_paused = redis.call('HEXISTS', limits_key, 'paused') == 1
redis.call('PUBLISH', base .. 'gate', is_paused and 'PAUSED' or 'OPEN')
return {'CONFIGURED'}
