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

local due = redis.call('ZRANGEBYSCORE', scheduled, '-inf', now_text, 'WITHSCORES', 'LIMIT', 0, limit)
local ids, touched, ended = {}, {}, {SUCCEEDED = true, CANCELLED = true}
for index = 1, #due, 2 do
  local id, due_at = due[index], due[index + 1]
  if not whole(due_at) then due_at = text(math.max(math.floor(tonumber(due_at)), 0)) end
  ids[#ids + 1] = id
  local job = redis.call('HMGET', job_key(id), 'task', 'priority', 'state', 'entry')
  if not job[1] then
    bury_foreign(id, {'raw', id}, 'scheduled id without a job record')
  elseif (job[4] or '') ~= '' or ended[job[3]] then
    -- A foreign hand scheduled a job that is elsewhere or has ended: only the id goes.
  elseif job[3] then
    push_ready(id, job[2], 'due_at', due_at, 'state', 'PENDING')
    touched[level(job[2])] = true
  else
    push_ready(id, job[2], 'due_at', due_at)
    touched[level(job[2])] = true
  end
end
-- Last, so that an error above leaves a job in two places (the claim sorts that out), never in none. By rank, since these
-- are the first: to find each again by name would cost more than all the rest.
if #ids > 0 then redis.call('ZREMRANGEBYRANK', scheduled, 0, #ids - 1) end
local backlog = 0
for priority in pairs(touched) do backlog = backlog + redis.call('XLEN', ready_key(priority)) end
local next_due = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local time = redis.call('TIME')
local now_us = given_ms ~= '' and text(now * 1000) or string.format('%d%06d', time[1], time[2])
local next_fire = redis.call('ZRANGE', base .. 'crons', 0, 0, 'WITHSCORES')
return {'PROMOTED', tostring(#ids), next_due[2] or '', now_us, tostring(backlog), next_fire[2] or ''}
