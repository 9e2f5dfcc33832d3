-- Occurrences of schedules: writing their jobs, and what the end of one lets begin.
-- The overlap is decided by the state of the job that was written last, so whatever ends it frees the schedule in the
-- same step. An occurrence that must wait is only an instant in `held`, no job yet, until the one before it ends.
-- Needs: partition, keys, ready, crons.

local function occurrence_id(schedule, instant)
  return string.match(base, '{(.+)}') .. '.' .. schedule .. '-' .. instant
end

local function is_live(id)
  local job = redis.call('HMGET', job_key(id), 'task', 'state')
  return job[1] and not (job[2] == 'SUCCEEDED' or job[2] == 'DEAD' or job[2] == 'CANCELLED') or false
end

-- The last ten instants and what became of each.
local function remember(schedule, instant, what)
  local key = history_key(schedule)
  redis.call('HSET', key, instant, what)
  if redis.call('HLEN', key) <= 10 then return end
  local oldest = math.huge
  for _, kept in ipairs(redis.call('HKEYS', key)) do oldest = math.min(oldest, tonumber(kept) or 0) end
  redis.call('HDEL', key, text(oldest))
end

-- Returns the occurrence's id, and whether its job is new: one whose record is still kept is not made twice.
local function write_occurrence(schedule, instant, start_at, note)
  local id, more, cron, priority = occurrence_id(schedule, instant), {}, {}, '5'
  if redis.call('EXISTS', job_key(id)) == 1 then return id, false end
  local flat = redis.call('HGETALL', cron_key(schedule))
  for index = 1, #flat, 2 do
    local name, value = flat[index], flat[index + 1]
    cron[name] = value
    if string.sub(name, 1, 4) == 'job.' then
      more[#more + 1] = string.sub(name, 5)
      more[#more + 1] = value
    end
    if name == 'job.priority' then priority = value end
  end
  for _, value in ipairs({'schedule_id', schedule, 'scheduled_for', instant, 'created_at', now_text}) do
    more[#more + 1] = value
  end
  local due = tonumber(start_at) or now
  if due > now then
    redis.call('HSET', job_key(id), 'task', cron.task, 'payload', cron.payload, unpack(more))
    redis.call('ZADD', scheduled, text(due), id)
    wake_scheduler({[id] = true})
  else
    push_ready(id, priority, 'due_at', text(due), 'task', cron.task, 'payload', cron.payload, unpack(more))
  end
  redis.call('HSET', cron_key(schedule), 'current', id, 'last', instant)
  bump(cron_key(schedule), 'fired', 1)
  bump(stats, 'enqueued', 1)
  remember(schedule, instant, note)
  return id, true
end

local function hold_back(schedule, instant)
  redis.call('RPUSH', held_key(schedule), instant)
  remember(schedule, instant, 'waits')
end

-- A newer occurrence takes the place of those that wait.
local function drop_held(schedule)
  local dropped = redis.call('LRANGE', held_key(schedule), 0, -1)
  if #dropped == 0 then return end
  redis.call('DEL', held_key(schedule))
  for _, instant in ipairs(dropped) do remember(schedule, instant, 'coalesced') end
  bump(cron_key(schedule), 'skipped', #dropped)
end

-- Begin the next occurrence that waits, if none lives. One whose job is there already has run: the next one then.
local function start_held(schedule)
  local current = redis.call('HGET', cron_key(schedule), 'current')
  if current and is_live(current) then return end
  repeat
    local instant = redis.call('LPOP', held_key(schedule))
    if not instant then return end
    local _, fresh = write_occurrence(schedule, instant, '', 'fired')
  until fresh
end

-- Every end of a job passes here; an id that is no occurrence's costs no command.
local function occurrence_ended(id)
  local schedule, instant = string.match(id, '^[^.]+%.%d+%.(.+)%-(%d+)$')
  if not schedule or redis.call('HGET', cron_key(schedule), 'task') == false then return end
  if redis.call('HEXISTS', history_key(schedule), instant) == 1 then
    local job = redis.call('HMGET', job_key(id), 'state', 'attempts')
    remember(schedule, instant, string.lower(job[1] or 'ended') .. ' attempt=' .. (job[2] or '0'))
  end
  if redis.call('EXISTS', held_key(schedule)) == 1 then start_held(schedule) end
end
