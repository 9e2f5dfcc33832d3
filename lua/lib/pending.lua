-- Looking at pending entries: what was delivered and not yet acknowledged.
-- Needs: partition, keys, ready, ending.

-- Returns {{stream id, consumer, idle, deliveries}, ...}; a stream or group that does not exist holds none.
local function pending_entries(priority, worker, idle_ms, limit, from)
  local arguments = {'XPENDING', ready_key(priority), 'workers'}
  if idle_ms ~= '0' then
    arguments[#arguments + 1] = 'IDLE'
    arguments[#arguments + 1] = idle_ms
  end
  for _, value in ipairs({from or '-', '+', limit}) do arguments[#arguments + 1] = value end
  if worker ~= '' then arguments[#arguments + 1] = worker end
  local reply = redis.pcall(unpack(arguments))
  return reply.err and {} or reply
end

-- Returns the id and hash of an entry's job. What is nobody's (no record, or a second entry of
-- the same id) is settled here, and nil comes back.
local function job_of_entry(entry)
  local priority, stream_id = split_entry(entry)
  local found = redis.call('XRANGE', ready_key(priority), stream_id, stream_id)[1]
  if not found then
    redis.call('XACK', ready_key(priority), 'workers', stream_id)
    return nil
  end
  local id = field(found[2], 'id')
  local job = read_job(id)
  if job.task and job.entry == entry then return id, job end
  if not job.task then bury_foreign(id, found[2], 'entry without a job record') end
  drop_entry(entry)
  return nil
end
