-- Register a schedule, or change it: an unchanged definition leaves its next instant alone.
-- Found in another partition (its queue has changed), it is moved with its counts and history in this one step.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms registry id fingerprint next_fire owner count [field value]...
--   registry: '' in a cluster, where no script sees the other partitions
--   owner: the App that declares it; '' leaves the owner as it is
-- Returns NEW next | UNCHANGED next | CHANGED next | MOVED next
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
local registry, id, fingerprint, next_fire = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local owner, count = ARGV[6], tonumber(ARGV[7])
local kept = {'owner', 'created_at', 'paused', 'fired', 'missed', 'skipped', 'last', 'current', 'fingerprint', 'next'}

assert(#ARGV == 7 + count, 'count does not fit the arguments')

local function read_kept(key)
  local state, values = {}, redis.call('HMGET', key, 'task', unpack(kept))
  for index, name in ipairs(kept) do state[name] = values[index + 1] or nil end
  return values[1] and state
end

local function take_from(other)
  local state = read_kept(other .. 'cron:' .. id)
  redis.call('DEL', other .. 'cron:' .. id)
  redis.call('ZREM', other .. 'crons', id)
  redis.call('SREM', other .. 'schedules', id)
  for _, kind in ipairs({'held:', 'history:'}) do
    if redis.call('EXISTS', other .. kind .. id) == 1 then
      redis.call('RENAME', other .. kind .. id, base .. kind .. id)
    end
  end
  return state
end

-- A job that still runs belongs to the other partition; the overlap begins anew here.
local function move_here()
  local queues, found = registry ~= '' and redis.call('HGETALL', registry) or {}, nil
  for index = 1, #queues, 2 do
    local is_queue = not string.find(queues[index], '/', 1, true)
    for number = 0, is_queue and (whole(queues[index + 1]) or 1) - 1 or -1 do
      local other = string.match(base, '^[^{]*') .. '{' .. queues[index] .. '.' .. text(number) .. '}:'
      if other ~= base and redis.call('EXISTS', other .. 'cron:' .. id) == 1 then found = take_from(other) end
    end
  end
  if found then found.current = nil end
  return found
end

local known, elsewhere = read_kept(cron_key(id)), move_here()
local state = known or elsewhere or {created_at = now_text}
if owner ~= '' then state.owner = owner end
local is_same = state.fingerprint == fingerprint
if is_same and (state.next == 'never' or whole(state.next)) then next_fire = state.next end
state.next, state.fingerprint = next_fire, fingerprint

local answer = {known and (is_same and 'UNCHANGED' or 'CHANGED') or elsewhere and 'MOVED' or 'NEW', next_fire}
if not (known and is_same) then
  redis.call('DEL', cron_key(id))
  redis.call('HSET', cron_key(id), 'changed_at', now_text, unpack(ARGV, 8, 7 + count))
end
for name, value in pairs(state) do redis.call('HSET', cron_key(id), name, value) end
local score = (state.paused or next_fire == 'never') and '+inf' or next_fire
redis.call('ZADD', crons, score, id)
redis.call('SADD', schedules, id)
if score ~= '+inf' then redis.call('PUBLISH', base .. 'wake', score) end
return answer
