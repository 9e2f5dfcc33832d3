-- Delivering: new entries of the ready streams go to a worker, and are pending for it.
-- Needs: partition, keys.

local function read_group(priority, worker, count)
  local read = function()
    return redis.pcall('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', count, 'STREAMS',
      ready_key(priority), '>')
  end
  local reply = read()
  if reply and reply.err then
    redis.call('XGROUP', 'CREATE', ready_key(priority), 'workers', '0', 'MKSTREAM')
    reply = read()
  end
  return reply and reply[1] and reply[1][2] or {}
end

-- Returns whether there was any.
local function read_into(found, priority, worker, count)
  local entries = read_group(priority, worker, count)
  for _, entry in ipairs(entries) do
    found[#found + 1] = {priority .. '/' .. entry[1], entry[2]}
  end
  return #entries > 0
end

-- Take at most `limit` new entries, priority 0 first, but one from `turn` on (so that none starves).
local function read_entries(worker, limit, turn)
  local found = {}
  if turn ~= '' and limit > 0 then
    for offset = 0, 9 do
      if read_into(found, (tonumber(turn) + offset) % 10, worker, 1) then break end
    end
  end
  for priority = 0, 9 do
    if #found >= limit then break end
    read_into(found, priority, worker, limit - #found)
  end
  return found
end
