-- Putting a job where workers or schedulers find it.
-- Needs: partition, keys.

-- Invariant: a job's hash names its one entry, so a second entry of the same id is known as foreign.
local function push_ready(id, priority, ...)
  local entry = redis.call('XADD', ready_key(priority), '*', 'id', id)
  redis.call('HSET', job_key(id), 'entry', priority .. '/' .. entry, ...)
end

-- A job that waited in the scheduled set remembers when it was due; any other was due when its entry was made.
local function due_ms(job, entry)
  return tonumber(job.due_at or string.match(entry, '^%d/(%d+)'))
end

local function drop_entry(entry)
  local priority, stream_id = split_entry(entry)
  redis.call('XACK', ready_key(priority), 'workers', stream_id)
  redis.call('XDEL', ready_key(priority), stream_id)
end

-- A scheduler sleeps until the earliest job; it is woken only when that changed.
local function wake_scheduler(ids)
  local first = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  if first[1] and ids[first[1]] then redis.call('PUBLISH', base .. 'wake', first[2]) end
end
