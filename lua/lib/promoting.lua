-- Promoting: due jobs become entries of the ready streams, under the lease of the partition.
-- Needs: partition, keys, ready, crons, ending, moving.

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

-- Returns how many ready entries were delivered to nobody yet, and how many jobs are left that are due: '' where jobs of
-- more than one priority are ready or have ever been delivered.
local function tell_of_herd()
  local unread, priorities = 0, 0
  for priority = 0, 9 do
    local group, entries = workers_group(priority), redis.call('XLEN', ready_key(priority))
    local last = field(group, 'last-delivered-id')
    unread = unread + entries - (tonumber(field(group, 'pending')) or 0)
    if entries > 0 or (last ~= '' and last ~= '0-0') then priorities = priorities + 1 end
  end
  return text(unread), priorities > 1 and '' or text(redis.call('ZCOUNT', scheduled, '-inf', now_text))
end

-- Returns the answer, and how many jobs were moved.
local function promote(limit, given_ms)
  local moved = move_due(limit, look, note_place)
  local unread, left = '0', '0'
  if moved > 0 and moved == tonumber(limit) then unread, left = tell_of_herd() end
  local next_due = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  local time = redis.call('TIME')
  local now_us = given_ms ~= '' and text(now * 1000) or string.format('%d%06d', time[1], time[2])
  local next_fire = redis.call('ZRANGE', crons, 0, 0, 'WITHSCORES')
  return {'PROMOTED', text(moved), next_due[2] or '', now_us, next_fire[2] or '', unread, left}, moved
end
