-- What a queue's limits allow: it may be paused, run so many jobs at once, start so many in a time.
-- Needs: partition, keys.

local limits_key, running, started = base .. 'limits', base .. 'running', base .. 'started'

local function read_limits()
  local told = redis.call('HMGET', limits_key, 'paused', 'concurrency', 'rate', 'rate_ms', 'keyed', 'held')
  return {paused = told[1], concurrency = tonumber(told[2]), rate = tonumber(told[4]) and tonumber(told[3]),
    rate_ms = tonumber(told[4]), keyed = told[5], held = told[6]}
end
local limits = read_limits()

-- Whatever was missed, a look a second sees it.
local function look_in(ms) return text(math.max(1, math.min(ms, 1000))) end

local function oldest(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
end

-- Returns how many of `wanted` jobs may start now; where that is fewer, also what holds the others up, and in how
-- many ms it is worth another look.
local function allowance(wanted)
  local allowed, gate, look_ms = wanted, '', '0'
  -- A new partition's share is still in use elsewhere (see configure).
  if limits.held then allowed, gate, look_ms = 0, 'FULL', look_in(1000) end
  if limits.paused then allowed, gate, look_ms = 0, 'PAUSED', look_in(1000) end
  if limits.concurrency then
    -- Invariant: who runs is told by leases, so a crash frees its place when its lease ends.
    redis.call('ZREMRANGEBYSCORE', running, '-inf', '(' .. now_text)
    local free = math.max(limits.concurrency - redis.call('ZCARD', running), 0)
    if free < allowed then
      allowed, gate, look_ms = free, 'FULL', look_in((oldest(running) or now + 1000) - now + 1)
    end
  end
  if limits.rate then
    redis.call('ZREMRANGEBYSCORE', started, '-inf', text(now - limits.rate_ms))
    local free = math.max(limits.rate - redis.call('ZCARD', started), 0)
    if free < allowed then
      allowed, gate, look_ms = free, 'RATED', look_in((oldest(started) or now) + limits.rate_ms - now)
    end
  end
  return allowed, gate, look_ms
end

local function remember(key, pairs_of, ttl_ms)
  for first = 1, #pairs_of, 500 do
    redis.call('ZADD', key, unpack(pairs_of, first, math.min(first + 499, #pairs_of)))
  end
  -- It outlives all that it holds, and no more.
  if #pairs_of > 0 and redis.call('PTTL', key) < ttl_ms then redis.call('PEXPIRE', key, text(ttl_ms)) end
end

-- Count runs, as they stand in an answer behind `first`.
local function count_starts(answer, first, lease_ms)
  local leases, starts = {}, {}
  for index = first + 1, #answer do
    leases[#leases + 1] = text(now + tonumber(lease_ms))
    leases[#leases + 1] = answer[index][2]
    starts[#starts + 1] = now_text
    starts[#starts + 1] = answer[index][3]
  end
  if limits.concurrency then remember(running, leases, tonumber(lease_ms)) end
  if limits.rate then remember(started, starts, limits.rate_ms) end
end

-- Runs ended: their places are free.
local function free_places(ids)
  if not limits.concurrency then return end
  for first = 1, #ids, 1000 do redis.call('ZREM', running, unpack(ids, first, math.min(first + 999, #ids))) end
end

-- Wake the workers that wait for a place, where there is one.
local function tell_of_places()
  if limits.concurrency and redis.call('ZCARD', running) < limits.concurrency then
    redis.call('PUBLISH', base .. 'gate', 'OPEN')
  end
end
