-- Settling the runs of a batch: what can be done once for all is gathered.
-- Needs: partition, keys, ready, ending, limits, slots, trimming.

local acknowledged, counted, ended, settled, delayed_ids, delayed = {}, {}, {}, {}, {}, false

local function acknowledge(entry)
  local priority, stream_id = split_entry(entry)
  local stream_ids = acknowledged[priority]
  if stream_ids then stream_ids[#stream_ids + 1] = stream_id else acknowledged[priority] = {stream_id} end
end

local function counts(name) counted[name] = (counted[name] or 0) + 1 end

local counter_names = {SUCCEEDED = 'succeeded', CANCELLED = 'cancelled', DEAD = 'dead', RELEASED = 'released',
  UNKNOWN = 'unknown'}

local function wait_again(id, entry, delay_ms, ...)
  local priority, due = split_entry(entry), now + tonumber(delay_ms)
  if due <= now then return push_ready(id, priority, 'due_at', text(due), 'state', 'PENDING', select(3, ...)) end
  redis.call('ZADD', scheduled, text(due), id)
  redis.call('HSET', job_key(id), 'entry', '', ...)
  delayed_ids[id], delayed = true, true
end

local outcomes = {}

function outcomes.SUCCEEDED(id, _, result, retention_ms, key)
  if key ~= '' then keep_key(id, key) end
  if result == '' then
    redis.call('HSET', job_key(id), 'state', 'SUCCEEDED', 'finished_at', now_text)
  else
    redis.call('HSET', job_key(id), 'state', 'SUCCEEDED', 'finished_at', now_text, 'result', result)
  end
  expire_job(id, retention_ms)
  ended[#ended + 1] = id
end

function outcomes.CANCELLED(id, entry, reason, retention_ms, key)
  redis.call('HSET', job_key(id), 'state', 'CANCELLED', 'finished_at', now_text, 'last_error', reason)
  free_key(id, key)
  expire_job(id, retention_ms)
  ended[#ended + 1] = id
end

function outcomes.DEAD(id, entry, reason, _, key)
  local job = redis.call('HMGET', job_key(id), 'task', 'attempts')
  -- A foreign hand deleted the record under the run.
  if not job[1] then return bury_foreign(id, {'raw', id}, reason) end
  bury(id, job[1], reason, job[2])
  free_key(id, key)
  ended[#ended + 1] = id
end

function outcomes.RETRY(id, entry, reason, delay_ms)
  counts('failed')
  -- It ran, so a worker knew the task: a later grace time starts anew.
  redis.call('HDEL', job_key(id), 'unknown_since')
  wait_again(id, entry, delay_ms, 'state', 'FAILED', 'last_error', reason)
end

function outcomes.RELEASED(id, entry, _, delay_ms)
  return_attempt(id)
  wait_again(id, entry, delay_ms, 'state', 'PENDING')
end

-- Unknown is not poison: another worker may know the task, so only the grace time ends it.
function outcomes.UNKNOWN(id, entry, reason, delay_ms, grace_ms)
  return_attempt(id)
  local job = redis.call('HMGET', job_key(id), 'unknown_since', 'idempotency_key')
  local since = whole(job[1])
  if not since then redis.call('HSET', job_key(id), 'unknown_since', now_text) end
  if now - (since or now) >= tonumber(grace_ms) then
    outcomes.DEAD(id, entry, reason, '', job[2])
    return 'DEAD'
  end
  wait_again(id, entry, delay_ms, 'state', 'PENDING')
end

-- Returns how a run may be settled whose lock is not the caller's: 'STALE', 'REPEATED' or 'LATE'.
local function without_lock(id, outcome, fence, holder)
  local job = redis.call('HMGET', job_key(id), 'fence', 'state', 'entry')
  if holder or job[1] ~= fence then return 'STALE' end
  local waits = job[2] == 'PENDING' or job[2] == 'RUNNING' or job[2] == 'DEAD'
  if not waits then return 'REPEATED' end
  if outcome ~= 'SUCCEEDED' then return job[2] == 'DEAD' and 'REPEATED' or 'STALE' end
  return 'LATE', job[3]
end

local function withdraw(id, entry)
  if string.sub(entry, 1, 5) == 'dead/' then
    redis.call('XDEL', dead, string.sub(entry, 6))
  elseif entry ~= '' and not unpark(id, entry) then
    drop_entry(entry)
  end
  redis.call('ZREM', scheduled, id)
end

-- Take the locks that are the caller's, up to 1,000 in one step, and say which they are. This is the first of the
-- writes and needs no memory, so a full server still lets a worker finish.
local function take_locks(worker, count)
  local owned, holders, taken = {}, {}, {}
  for first = 1, count, 1000 do
    local last, lock_keys, own_keys = math.min(first + 999, count), {}, {}
    for run = first, last do lock_keys[#lock_keys + 1] = lock_key(ARGV[run * 7 + 1]) end
    for index, holder in ipairs(redis.call('MGET', unpack(lock_keys))) do
      local run, key = first + index - 1, lock_keys[index]
      -- The same run again in this batch is a repetition, as it is in the next.
      holders[run] = not taken[key] and holder
      owned[run] = holders[run] == worker .. '#' .. ARGV[run * 7 + 2]
      if owned[run] then
        own_keys[#own_keys + 1] = key
        taken[key] = true
      end
    end
    if #own_keys > 0 then redis.call('DEL', unpack(own_keys)) end
  end
  return owned, holders
end

local function settle(owned, holder, outcome, id, fence, entry, a, b, c)
  local note
  if not owned then
    local waiting_entry
    note, waiting_entry = without_lock(id, outcome, fence, holder)
    counts(string.lower(note))
    if note ~= 'LATE' then return note end
    withdraw(id, waiting_entry or '')
  end
  note = outcomes[outcome](id, entry, a, b, c) or note
  acknowledge(entry)
  settled[#settled + 1] = id
  free_slot(id)
  if outcome ~= 'RETRY' then counts(note == 'DEAD' and 'dead' or counter_names[outcome]) end
  return note
end

local function settle_batch()
  for priority, stream_ids in pairs(acknowledged) do
    for first = 1, #stream_ids, 1000 do
      remove_entries(priority, {unpack(stream_ids, first, math.min(first + 999, #stream_ids))})
    end
  end
  free_places(settled)
  for name, number in pairs(counted) do bump(stats, name, number) end
  if delayed then wake_scheduler(delayed_ids) end
  announce(ended)
end
