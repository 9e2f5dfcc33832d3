-- Moving: due jobs leave the scheduled set for their ready streams, the earliest first.
-- Needs: partition, keys, ready, ending.

-- A foreign hand may have scheduled a job at a fraction of a ms, or at any time of the past.
local function instant_of(score)
  return whole(score) and score or text(math.max(math.floor(tonumber(score)), 0))
end

-- A retry that waited is pending again. The state of a new job is not stored.
local function note_place(key, entry, due_at, state)
  if state then
    redis.call('HSET', key, 'entry', entry, 'due_at', due_at, 'state', 'PENDING')
  else
    redis.call('HSET', key, 'entry', entry, 'due_at', due_at)
  end
end

-- For each job `look(key)` tells its task, priority, state and entry, and `note(key, entry, due_at, state, id)` writes
-- down where it is now. Returns how many ids were taken from the set, and how many entries each priority's stream got.
local function move_due(limit, look, note)
  local due = redis.call('ZRANGEBYSCORE', scheduled, '-inf', now_text, 'LIMIT', 0, limit)
  if #due == 0 then return 0, {} end

  -- To spell scores costs as much as writing jobs. A herd is due in one instant: then its first and last tell of all.
  local one_instant, scores
  local first = redis.call('ZSCORE', scheduled, due[1])
  if #due == 1 or first == redis.call('ZSCORE', scheduled, due[#due]) then
    one_instant = instant_of(first)
  else
    scores = redis.call('ZRANGE', scheduled, 0, #due - 1, 'WITHSCORES')
  end

  local streams, added, ended = {}, {}, {SUCCEEDED = true, CANCELLED = true}
  for index, id in ipairs(due) do
    local key = job_key(id)
    local task, told, state, elsewhere = look(key)
    if not task then
      bury_foreign(id, {'raw', id}, 'scheduled id without a job record')
    elseif (elsewhere and elsewhere ~= '') or ended[state] then
      -- A foreign hand scheduled a job that is elsewhere or has ended: only the id goes.
    else
      -- As `push_ready` does; here each step counts, for a herd of due jobs passes through.
      local priority = level(told)
      local stream = streams[priority]
      if not stream then
        stream = ready_key(priority)
        streams[priority], added[priority] = stream, 0
      end
      added[priority] = added[priority] + 1
      local entry = priority .. '/' .. redis.call('XADD', stream, '*', 'id', id)
      note(key, entry, one_instant or instant_of(scores[index * 2]), state, id)
    end
  end
  -- Last, so that an error above leaves a job in two places (the claim sorts that out), never in none. By rank, since these
  -- are the first: to find each again by name would cost more than all the rest.
  redis.call('ZREMRANGEBYRANK', scheduled, 0, #due - 1)
  return #due, added
end
