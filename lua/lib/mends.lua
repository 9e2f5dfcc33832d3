-- The single mends of a job, each of which says what it did.
-- Needs: partition, keys, ready, limits, slots, ending, looking.

local done = {}
local function did(what) done[#done + 1] = what end

local function is_stream_entry(entry)
  return string.find(entry, '^%d/%d+%-%d+$') or string.find(entry, '^dead/%d+%-%d+$') or string.sub(entry, 1, 7) == 'parked/'
end

local function take_out(id, entry)
  if unpark(id, entry) then return end
  if string.sub(entry, 1, 5) == 'dead/' then redis.call('XDEL', dead, string.sub(entry, 6)) else drop_entry(entry) end
end

-- Returns what is behind the job's own entry, who holds it, and the other entries that name the job.
local function look_around(id, own, entries)
  local own_what, consumer, strays = 'gone', '', {}
  for entry in pairs(entries) do
    local what, found, holder = 'gone', '', ''
    if is_stream_entry(entry) then what, found, holder = look_at_entry(entry, id) end
    if what == 'hollow' or (what ~= 'gone' and found == id) then
      if entry == own then own_what, consumer = what, holder else strays[#strays + 1] = entry end
    end
  end
  return own_what, consumer, strays
end

local right = {PENDING = {undelivered = true, pending = true, parked = true}, RUNNING = {pending = true}, FAILED = {},
  DEAD = {dead = true}}

local function put_back(id, job, state, score)
  local due = tonumber(score or '') or whole(job.due_at) or now
  if state == 'DEAD' then
    bury(id, job.task, job.last_error or '', job.attempts)
    return did('put back among the dead')
  end
  if due > now and due < 1e15 then
    redis.call('ZADD', scheduled, text(due), id)
    redis.call('HSET', job_key(id), 'entry', '', 'state', state == 'FAILED' and 'FAILED' or 'PENDING')
    wake_scheduler({[id] = true})
    return did('put back into the scheduled set')
  end
  push_ready(id, job.priority, 'due_at', text(math.max(math.min(due, now), 0)), 'state', 'PENDING')
  did('put back into its ready stream' .. ((score or whole(job.due_at)) and '' or ', as nothing says a later time'))
end

local function mend_fields(id, job)
  for _, name in ipairs({'attempts', 'max_retries', 'due_at', 'priority', 'expires_ms', 'timeout_ms', 'retention_ms',
    'idempotency_ttl_ms', 'concurrency_limit', 'unknown_since', 'created_at', 'replays'}) do
    if job[name] and (not whole(job[name]) or (name == 'priority' and not string.find(job[name], '^%d$'))) then
      redis.call('HDEL', job_key(id), name)
      job[name] = nil
      did('removed its unreadable ' .. name)
    end
  end
  local least = job.state == 'RUNNING' and 1 or 0
  local most = (whole(job.max_retries) or 1e9) + 1
  local attempts = whole(job.attempts) or 0
  if attempts < least or attempts > most then
    job.attempts = text(math.max(math.min(attempts, most), least))
    redis.call('HSET', job_key(id), 'attempts', job.attempts)
    did('set its attempts to ' .. job.attempts)
  end
end

local function mend_key(id, job, state)
  local key = job.idempotency_key
  if not key or key == '' or state == 'DEAD' then return end
  local holder = redis.call('GET', idem_key(key))
  if holder == id or (holder and redis.call('EXISTS', job_key(holder), done_key(key)) > 0) then return end
  redis.call('SET', idem_key(key), id)
  did('gave it its idempotency key back')
end

local function mend_slot(id, job, runs, waits)
  local slot, key = redis.call('HGET', holding, id), job.concurrency_key
  if slot and (slot ~= key or not (runs or waits)) then
    limits.keyed = limits.keyed or '1'
    free_slot(id)
    did('freed a slot it should not hold')
    slot = false
  end
  if runs and key and not slot then
    hold(id, key)
    did('gave its run the slot of its key')
  end
end
