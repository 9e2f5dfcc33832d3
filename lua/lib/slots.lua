-- Slots of a concurrency key: so many of its jobs may run at once, and the others are parked.
-- Invariant: a slot that gets free is handed on in the same script. Its new holder keeps it on its way through the
-- ready stream until its run ends, so nobody overtakes it, and where jobs are parked somebody's end will call them.
-- Needs: partition, keys, ready, limits.

local holding = base .. 'holding'

local function holders_key(key) return base .. 'holders:' .. key end
local function parked_key(key) return base .. 'parked:' .. key end

local function hold(id, key)
  redis.call('ZADD', holders_key(key), now_text, id)
  redis.call('HSET', holding, id, key)
  if not limits.keyed then redis.call('HSET', limits_key, 'keyed', '1') end
  limits.keyed = '1'
end

-- Take a job out of its parking place; false where `entry` names another place.
local function unpark(id, entry)
  if string.sub(entry, 1, 7) ~= 'parked/' then return false end
  local gone = redis.call('ZREM', parked_key(string.sub(entry, 8)), id)
  if gone == 1 then bump(stats, 'parked', -1) end
  return true
end

local function hand_on(key)
  local id = redis.call('ZRANGE', parked_key(key), 0, 0)[1]
  while id do
    local job = redis.call('HMGET', job_key(id), 'entry', 'priority', 'concurrency_limit')
    local is_own = job[1] == 'parked/' .. key
    if is_own and redis.call('ZCARD', holders_key(key)) >= (whole(job[3]) or 1) then return end
    unpark(id, 'parked/' .. key)
    if is_own then
      hold(id, key)
      push_ready(id, job[2])
    end
    id = redis.call('ZRANGE', parked_key(key), 0, 0)[1]
  end
end

-- Free the slot that a job may hold, and hand it on.
local function free_slot(id)
  local key = limits.keyed and redis.call('HGET', holding, id)
  if not key then return end
  redis.call('HDEL', holding, id)
  redis.call('ZREM', holders_key(key), id)
  if redis.call('EXISTS', holding) == 0 then
    redis.call('HDEL', limits_key, 'keyed')
    limits.keyed = false
  end
  hand_on(key)
end

-- A foreign hand may have deleted a holder's record: the oldest holders are looked at by who finds no slot.
local looked_at = {}
local function free_slots_of_nobody(key)
  if looked_at[key] then return end
  looked_at[key] = true
  for _, id in ipairs(redis.call('ZRANGE', holders_key(key), 0, 9)) do
    if redis.call('HEXISTS', job_key(id), 'task') == 0 then free_slot(id) end
  end
end

local function has_slot(id, job)
  local key, most = job.concurrency_key, whole(job.concurrency_limit) or 1
  if not key or redis.call('HEXISTS', holding, id) == 1 then return true end
  if redis.call('ZCARD', holders_key(key)) < most then return true end
  free_slots_of_nobody(key)
  return redis.call('ZCARD', holders_key(key)) < most
end

-- No attempt is spent, and the job keeps its turn: who was due first is called first, in the order of their entries
-- where that was in the same ms.
local function park(id, job, entry)
  local due, sequence = text(due_ms(job, entry)), math.min(tonumber(string.match(entry, '%d+$')), 4095)
  drop_entry(entry)
  redis.call('ZADD', parked_key(job.concurrency_key), due .. string.format('.%04d', sequence * 2), id)
  redis.call('HSET', job_key(id), 'entry', 'parked/' .. job.concurrency_key, 'due_at', due)
  bump(stats, 'parked', 1)
end
