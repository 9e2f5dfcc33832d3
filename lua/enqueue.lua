-- Write jobs, all or none: a due one to its ready stream, a later one to the scheduled set.
-- Repeating a call is safe: an id that exists already is left as it is.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms client_ms count [id run_at priority key task payload more_count more...]...
--   more: further fields of the job's hash and their values
--   client_ms: when the ids were made; they tell it, so it is stored only where that is off by over a second
--   run_at: '' now, '+n' n ms from now, else ms since the epoch
-- Returns OK fresh [index holder]... : fresh is '1' when the partition was empty of history;
--   each pair is a job not written, since its key belongs to `holder`
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
local client_ms, count = tonumber(ARGV[2]), tonumber(ARGV[3])
local clock_is_off = math.abs(now - client_ms) > 1000

-- A key whose job is gone (a foreign hand deleted it) and was never executed is free.
local function key_holder(key)
  local holder = redis.call('GET', idem_key(key))
  if not holder then return nil end
  if redis.call('EXISTS', job_key(holder), done_key(key)) > 0 then return holder end
end

local function time_ms(run_at)
  if run_at == '' then return now end
  if string.sub(run_at, 1, 1) == '+' then return now + tonumber(string.sub(run_at, 2)) end
  return tonumber(run_at)
end

-- All or none: a malformed call stops here, before the first write.
local dues, job_keys, cursor = {}, {}, 4
for index = 1, count do
  job_keys[index] = job_key(ARGV[cursor])
  dues[index] = assert(time_ms(ARGV[cursor + 1]), 'run_at is not a number')
  cursor = cursor + 7 + assert(tonumber(ARGV[cursor + 6]), 'more_count is not a number')
end
assert(cursor == #ARGV + 1, 'count does not fit the arguments')

-- One look at all: mostly no id exists yet.
local some_exist = false
for first = 1, count, 500 do
  some_exist = some_exist or redis.call('EXISTS', unpack(job_keys, first, math.min(first + 499, count))) > 0
end

local answer, later, later_ids, written = {'OK', '0'}, {}, {}, 0
cursor = 4
for index = 1, count do
  local id, due, priority, key = ARGV[cursor], dues[index], ARGV[cursor + 2], ARGV[cursor + 3]
  local task, payload, more = ARGV[cursor + 4], ARGV[cursor + 5], cursor + 7
  local last = more + tonumber(ARGV[cursor + 6]) - 1
  cursor = last + 1
  local holder = key ~= '' and key_holder(key)
  if holder then
    if holder ~= id then
      answer[#answer + 1] = tostring(index - 1)
      answer[#answer + 1] = holder
    end
  elseif not some_exist or redis.call('EXISTS', job_keys[index]) == 0 then
    written = written + 1
    if key ~= '' then redis.call('SET', idem_key(key), id) end
    if due > now then
      redis.call('HSET', job_keys[index], 'task', task, 'payload', payload, unpack(ARGV, more, last))
      later[#later + 1] = text(due)
      later[#later + 1] = id
      later_ids[id] = true
    else
      push_ready(id, priority, 'task', task, 'payload', payload, unpack(ARGV, more, last))
    end
    if clock_is_off then redis.call('HSET', job_keys[index], 'created_at', now_text) end
  end
end
for first = 1, #later, 500 do
  redis.call('ZADD', scheduled, unpack(later, first, math.min(first + 499, #later)))
end
if #later > 0 then wake_scheduler(later_ids) end
if written > 0 and bump(stats, 'enqueued', written) == written then answer[2] = '1' end
return answer
