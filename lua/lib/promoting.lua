-- Promoting: due jobs become entries of the ready streams, under the lease of the partition.
-- Needs: partition, keys, ready, ending, moving.

-- Take or prolong the partition's lease. Returns the answer to give where another scheduler has it, else nil.
local function held_by_another(lease, owner, lease_ms)
  if redis.call('SET', lease, owner, 'NX', 'PX', lease_ms) then return nil end
  local holder = redis.call('GET', lease)
  if holder ~= owner then return {'HELD', holder or '', tostring(redis.call('PTTL', lease))} end
  redis.call('PEXPIRE', lease, lease_ms)
end

local function look(key)
  return unpack(redis.call('HMGET', key, 'task', 'priority', 'state', 'entry'))
end

-- Whether jobs of more than one priority have ever been ready here. An emptied stream remembers its last id.
local function has_priorities()
  local used = 0
  for priority = 0, 9 do
    local about = redis.pcall('XINFO', 'STREAM', ready_key(priority))
    if not about.err and field(about, 'last-generated-id') ~= '0-0' then used = used + 1 end
  end
  return used > 1
end

-- Returns how many entries of the streams were never read, and how many jobs that are due are left where one priority
-- is all that is in use ('' where there are several).
local function tell_of_herd(added)
  local unread = 0
  for priority in pairs(added) do
    local pending = field(workers_group(priority), 'pending')
    unread = unread + redis.call('XLEN', ready_key(priority)) - (tonumber(pending) or 0)
  end
  return text(unread), has_priorities() and '' or text(redis.call('ZCOUNT', scheduled, '-inf', now_text))
end

-- Returns the answer, and how many jobs were moved.
local function promote(limit, given_ms)
  local moved, added = move_due(limit, look, note_place)
  local unread, left = '0', '0'
  if moved > 0 and moved == tonumber(limit) then unread, left = tell_of_herd(added) end
  local next_due = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  local time = redis.call('TIME')
  local now_us = given_ms ~= '' and text(now * 1000) or string.format('%d%06d', time[1], time[2])
  local next_fire = redis.call('ZRANGE', base .. 'crons', 0, 0, 'WITHSCORES')
  return {'PROMOTED', text(moved), next_due[2] or '', now_us, next_fire[2] or '', unread, left}, moved
end
