-- Putting a job where workers or schedulers find it.
-- Needs: partition, keys.

-- What a foreign hand wrote for a priority would be a stream that nobody reads.
local function level(priority)
  return priority and string.find(priority, '^%d$') and priority or '5'
end

-- Invariant: a job's hash names its one entry, so a second entry of the same id is known as foreign.
local function push_ready(id, priority, ...)
  priority = level(priority)
  local entry = redis.call('XADD', ready_key(priority), '*', 'id', id)
  redis.call('HSET', job_key(id), 'entry', priority .. '/' .. entry, ...)
end

-- A job that waited in the scheduled set remembers when it was due; any other was due when its entry was made.
local function due_ms(job, entry)
  return whole(job.due_at) or tonumber(string.match(entry, '^%d/(%d+)'))
end

local function drop_entry(entry)
  if not string.find(entry, '^%d/%d+%-%d+$') then return end
  local priority, stream_id = split_entry(entry)
  redis.call('XACK', ready_key(priority), 'workers', stream_id)
  redis.call('XDEL', ready_key(priority), stream_id)
end

-- A run that did not count gives its attempt back.
local function return_attempt(id)
  local spent = whole(redis.call('HGET', job_key(id), 'attempts')) or 1
  redis.call('HSET', job_key(id), 'attempts', text(math.max(spent - 1, 0)))
end

-- A scheduler sleeps until the earliest job; it is woken only when that changed.
local function wake_scheduler(ids)
  local first = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  if first[1] and ids[first[1]] then redis.call('PUBLISH', base .. 'wake', first[2]) end
end
