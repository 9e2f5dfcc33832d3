-- Move due jobs to their ready streams, if this scheduler holds (or gets) the partition's lease.
-- KEYS: base scheduled dead stats lease
-- ARGV: now_ms owner lease_ms limit
-- Returns HELD holder ttl_ms | PROMOTED count next_run_at now_us backlog next_fire_at : next_run_at is '' when
--   nothing waits, next_fire_at when no schedule does; backlog is how many entries the streams it wrote to hold now
-- @include lib/partition.lua
-- @include lib/full.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
local lease = KEYS[5]
local given_ms, owner, lease_ms, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if not redis.call('SET', lease, owner, 'NX', 'PX', lease_ms) then
  local holder = redis.call('GET', lease)
  if holder ~= owner then return {'HELD', holder or '', tostring(redis.call('PTTL', lease))} end
  redis.call('PEXPIRE', lease, lease_ms)
end

local due = redis.call('ZRANGEBYSCORE', scheduled, '-inf', now_text, 'LIMIT', 0, limit)

-- A foreign hand may have scheduled a job at a fraction of a ms, or at any time of the past.
local function instant_of(score)
  return whole(score) and score or text(math.max(math.floor(tonumber(score)), 0))
end

-- To spell scores costs as much as writing jobs. A herd is due in one instant: then its first and last tell of all.
local one_instant, scores
if #due > 0 then
  local first, last = redis.call('ZSCORE', scheduled, due[1]), redis.call('ZSCORE', scheduled, due[#due])
  if first == last then
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
return {'PROMOTED', text(#due), next_due[2] or '', now_us, tostring(backlog), next_fire[2] or ''}
