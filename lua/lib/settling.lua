-- Settling the runs of a batch: who may end them, and what is done once for all of them.
-- Needs: partition, keys, ready, ending, limits, slots, trimming, outcomes.

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
