-- Promoting: due jobs become entries of the ready streams, under the lease of the partition.
-- Needs: partition, keys, ready, ending.

-- A foreign hand may have scheduled a job at a fraction of a ms, or at any time of the past.
local function instant_of(score)
  return whole(score) and score or text(math.max(math.floor(tonumber(score)), 0))
end

-- Take or prolong the partition's lease. Returns the answer to give where another scheduler has it, else nil.
local function held_by_another(lease, owner, lease_ms)
  if redis.call('SET', lease, owner, 'NX', 'PX', lease_ms) then return nil end
  local holder = redis.call('GET', lease)
  if holder ~= owner then return {'HELD', holder or '', tostring(redis.call('PTTL', lease))} end
  redis.call('PEXPIRE', lease, lease_ms)
end

-- Returns the answer, and how many jobs were moved.
local function promote(limit, given_ms)
  local due = redis.call('ZRANGEBYSCORE', scheduled, '-inf', now_text, 'LIMIT', 0, limit)

  -- To spell scores costs as much as writing jobs. A herd is due in one instant: then its first and last tell of all.
  local one_instant, scores
  if #due > 0 then
    local first = redis.call('ZSCORE', scheduled, due[1])
    if #due == 1 or first == redis.call('ZSCORE', scheduled, due[#due]) then
      one_instant = instant_of(first)
    else
      scores = redis.call('ZRANGE', scheduled, 0, #due - 1, 'WITHSCORES')
    end
  end

  local streams, ended = {}, {SUCCEEDED = true, CANCELLED = true}
  for index, id in ipairs(due) do
    local key, due_at = job_key(id), one_instant or instant_of(scores[index * 2])
    local job = redis.call('HMGET', key, 'task', 'priority', 'state', 'entry')
    local priority, state, elsewhere = job[2] or '5', job[3], job[4]
    if not job[1] then
      bury_foreign(id, {'raw', id}, 'scheduled id without a job record')
    elseif (elsewhere and elsewhere ~= '') or ended[state] then
      -- A foreign hand scheduled a job that is elsewhere or has ended: only the id goes.
    else
      -- As `push_ready` does; here each step counts, for a herd of due jobs passes through.
      local stream = streams[priority]
      if not stream then
        priority = level(priority)
        stream = ready_key(priority)
        streams[priority] = stream
      end
      local entry = priority .. '/' .. redis.call('XADD', stream, '*', 'id', id)
      if state then
        redis.call('HSET', key, 'entry', entry, 'due_at', due_at, 'state', 'PENDING')
      else
        redis.call('HSET', key, 'entry', entry, 'due_at', due_at)
      end
    end
  end
  -- Last, so that an error above leaves a job in two places (the claim sorts that out), never in none. By rank, since these
  -- are the first: to find each again by name would cost more than all the rest.
  if #due > 0 then redis.call('ZREMRANGEBYRANK', scheduled, 0, #due - 1) end
  local backlog = 0
  for _, stream in pairs(streams) do backlog = backlog + redis.call('XLEN', stream) end
  local next_due = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  local time = redis.call('TIME')
  local now_us = given_ms ~= '' and text(now * 1000) or string.format('%d%06d', time[1], time[2])
  local next_fire = redis.call('ZRANGE', base .. 'crons', 0, 0, 'WITHSCORES')
  local answer = {'PROMOTED', text(#due), next_due[2] or '', now_us, tostring(backlog), next_fire[2] or ''}
  return answer, #due
end
