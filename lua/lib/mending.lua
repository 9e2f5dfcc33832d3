-- Mending a job: it is looked at anew, and put into one place only where it is in none, in several or in a wrong one.
-- Invariant: a run whose lock is its newest fence's is alive, whatever became of its entry: it is left to its worker.
-- Needs: partition, keys, ready, limits, slots, occurrences, ending, looking, mends.

-- A job that is alive or dead, in state `state`.
local function mend_kept(id, job, state, entries)
  local own, score, lock = job.entry or '', redis.call('ZSCORE', scheduled, id), redis.call('GET', lock_key(id))
  local own_what, consumer, strays = look_around(id, own, entries)
  if own_what == 'dead' and state ~= 'DEAD' then
    -- What it says it waits for is in doubt; that it was given up is not.
    redis.call('HSET', job_key(id), 'state', 'DEAD')
    state = 'DEAD'
    did('says again that it is dead')
  end
  local alive = lock and state == 'RUNNING' and string.match(lock, '#(%d+)$') == job.fence
  if alive and own_what == 'pending' and lock ~= consumer .. '#' .. job.fence then alive = false end
  if lock and not alive then
    redis.call('DEL', lock_key(id))
    did('deleted a lock without a run')
  end
  local is_placed = right[state][own_what] or (own == '' and score and state ~= 'RUNNING' and state ~= 'DEAD')
  if is_placed or alive then
    if score and own ~= '' then
      redis.call('ZREM', scheduled, id)
      did('taken out of the scheduled set')
    end
  else
    if own_what ~= 'gone' then strays[#strays + 1] = own end
    redis.call('ZREM', scheduled, id)
  end
  for _, entry in ipairs(strays) do
    take_out(id, entry)
    did('taken out of ' .. entry)
  end
  mend_slot(id, job, alive or (is_placed and state == 'RUNNING'), is_placed and own_what ~= 'gone' and own_what ~= 'parked'
    and state ~= 'DEAD')
  if not (is_placed or alive) then put_back(id, job, state, score) end
  if redis.call('PERSIST', job_key(id)) == 1 then did('kept it from expiring') end
  mend_key(id, job, state)
end

local function mend_ended(id, job, entries)
  local own_what, _, strays = look_around(id, '', entries)
  if own_what ~= 'gone' then strays[#strays + 1] = job.entry end
  for _, entry in ipairs(strays) do
    take_out(id, entry)
    did('it has ended: taken out of ' .. entry)
  end
  if redis.call('ZREM', scheduled, id) == 1 then did('it has ended: taken out of the scheduled set') end
  if redis.call('DEL', lock_key(id)) == 1 then did('deleted the lock of a job that has ended') end
  mend_slot(id, job, false, false)
  if redis.call('PTTL', job_key(id)) == -1 then
    expire_job(id, job.retention_ms)
    did('lets it expire')
  end
end

-- An id without a job: what names it goes; what may be all that is left of somebody's job is kept among the dead.
local function mend_stranger(id, flat, entries)
  for entry in pairs(entries) do
    local what, found = 'gone', ''
    if is_stream_entry(entry) then what, found = look_at_entry(entry, id) end
    if what == 'hollow' then
      drop_entry(entry)
      did('acknowledged ' .. entry .. ', which is gone')
    elseif what ~= 'gone' and found == id and not (what == 'dead' and id == '') then
      local stream = what == 'dead' and dead or what ~= 'parked' and ready_key(string.sub(entry, 1, 1))
      local stream_id = string.match(entry, '(%d+%-%d+)$')
      local kept = stream and redis.call('XRANGE', stream, stream_id, stream_id)[1]
      bury_foreign(id, kept and kept[2] or {'raw', id}, 'entry without a job record')
      take_out(id, entry)
      did('moved ' .. entry .. ', which has no job, among the dead')
    end
  end
  if id == '' then return end
  if redis.call('ZREM', scheduled, id) == 1 then
    bury_foreign(id, {'raw', id}, 'scheduled id without a job record')
    did('moved an id of the scheduled set, which has no job, among the dead')
  end
  if redis.call('DEL', lock_key(id)) == 1 then did('deleted a lock without a job') end
  if #flat > 0 and redis.call('PTTL', job_key(id)) == -1 then
    bury_foreign(id, flat, 'a record without a task')
    did('moved a record without a task among the dead')
  end
end
