-- Renew a worker's leases and store its runs' progress. A pending entry's idle time is renewed with the
-- lock, so that both run out together.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms worker lease_ms count [id fence entry progress]...
-- Returns RENEWED [fence what]... : only what is LOST (the lock is not this run's) or to be CANCELLED
-- @include lib/partition.lua
-- @include lib/full.lua
-- @include lib/keys.lua
local worker, lease_ms, count = ARGV[2], ARGV[3], tonumber(ARGV[4])

local answer, renewed, leases = {'RENEWED'}, {}, {}
for index = 5, 4 + count * 4, 4 do
  local id, fence, entry, progress = ARGV[index], ARGV[index + 1], ARGV[index + 2], ARGV[index + 3]
  local what
  if redis.call('GET', lock_key(id)) ~= worker .. '#' .. fence then
    what = 'LOST'
  else
    redis.call('PEXPIRE', lock_key(id), lease_ms)
    if progress ~= '' then redis.call('HSET', job_key(id), 'progress', progress) end
    local priority, stream_id = split_entry(entry)
    renewed[priority] = renewed[priority] or {}
    table.insert(renewed[priority], stream_id)
    leases[#leases + 1] = text(now + tonumber(lease_ms))
    leases[#leases + 1] = id
    if redis.call('HEXISTS', job_key(id), 'cancel_requested') == 1 then what = 'CANCELLED' end
  end
  if what then
    answer[#answer + 1] = fence
    answer[#answer + 1] = what
  end
end
-- What a queue with a limit counts as running, it counts by its lease.
local running = base .. 'running'
if #leases > 0 and redis.call('HEXISTS', base .. 'limits', 'concurrency') == 1 then
  for first = 1, #leases, 500 do
    redis.call('ZADD', running, unpack(leases, first, math.min(first + 499, #leases)))
  end
  if redis.call('PTTL', running) < tonumber(lease_ms) then redis.call('PEXPIRE', running, lease_ms) end
end
for priority, stream_ids in pairs(renewed) do
  for first = 1, #stream_ids, 500 do
    local arguments = {'XCLAIM', ready_key(priority), 'workers', worker, '0'}
    for at = first, math.min(first + 499, #stream_ids) do arguments[#arguments + 1] = stream_ids[at] end
    arguments[#arguments + 1] = 'JUSTID'
    -- A stream that somebody deleted must not cost the other runs their leases.
    redis.pcall(unpack(arguments))
  end
end
return answer
