-- Taking entries that have ended out of the ready streams.
-- Needs: partition, keys.

-- The first entry of a stream that has not ended: the first pending one, else the first not delivered.
local function first_unfinished(priority, stream)
  local pending = redis.call('XPENDING', stream, 'workers', '-', '+', 1)[1]
  if pending then return pending[1] end
  local delivered = field(workers_group(priority), 'last-delivered-id')
  local ms, sequence = string.match(delivered, '^(%d+)%-(%d+)$')
  return ms .. '-' .. text(tonumber(sequence) + 1)
end

-- Entries end in order, mostly, and to trim the head of a stream costs a thirtieth of deleting its entries one by
-- one. What stands before the first unfinished entry has ended, if the group knew each of these entries.
local function remove_entries(priority, stream_ids)
  local stream = ready_key(priority)
  local known, trimmed = redis.call('XACK', stream, 'workers', unpack(stream_ids)), 0
  if #stream_ids > 1 and known == #stream_ids then
    trimmed = redis.call('XTRIM', stream, 'MINID', first_unfinished(priority, stream))
  end
  if trimmed < #stream_ids then redis.call('XDEL', stream, unpack(stream_ids)) end
end
