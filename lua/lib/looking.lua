-- Looking at what is behind an entry: `priority/stream id`, `dead/stream id` or `parked/concurrency key`.
-- Needs: partition, keys.

local function was_delivered(priority, stream_id)
  local last = field(workers_group(priority), 'last-delivered-id')
  if last == '' then return false end
  local newer = redis.call('XREVRANGE', ready_key(priority), stream_id, '(' .. last, 'COUNT', 1)[1]
  return not (newer and newer[1] == stream_id)
end

local function look_at_ready(priority, stream_id)
  local found = redis.call('XRANGE', ready_key(priority), stream_id, stream_id)[1]
  local id = found and field(found[2], 'id') or ''
  local pending = redis.pcall('XPENDING', ready_key(priority), 'workers', stream_id, stream_id, 1)
  if not pending.err and pending[1] then return found and 'pending' or 'hollow', id, pending[1][2] end
  if not found then return 'gone', '', '' end
  return was_delivered(priority, stream_id) and 'left' or 'undelivered', id, ''
end

local function look_at_entry(entry, id)
  if string.sub(entry, 1, 7) == 'parked/' then
    return redis.call('ZSCORE', base .. 'parked:' .. string.sub(entry, 8), id) and 'parked' or 'gone', id, ''
  end
  if string.sub(entry, 1, 5) ~= 'dead/' then return look_at_ready(split_entry(entry)) end
  local stream_id = string.sub(entry, 6)
  local found = redis.call('XRANGE', dead, stream_id, stream_id)[1]
  return found and 'dead' or 'gone', found and field(found[2], 'id') or '', ''
end
