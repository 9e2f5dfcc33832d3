-- Choosing entries of the dead stream, by id or by page.
-- Needs: partition, keys.

-- Returns the hash of a dead job, or nil.
local function dead_job(id)
  local job = read_job(id)
  if job.task and job.state == 'DEAD' then return job end
end

-- An id names a dead job, or (for an entry without one) a stream id of the dead stream.
local function grave_of(id)
  local job = dead_job(id)
  if job and string.sub(job.entry or '', 1, 5) == 'dead/' then return string.sub(job.entry, 6) end
  local found = string.find(id, '^%d+%-%d+$') and redis.call('XRANGE', dead, id, id)[1]
  return found and not dead_job(field(found[2], 'id')) and id
end

-- Returns {{id, grave or false}, ...}, an id named twice once, and the last grave of a page ('' at the end).
local function chosen_graves(from, to, limit, count)
  local graves, named = {}, {}
  for index = 6, 5 + count do
    local id = ARGV[index]
    if not named[id] then graves[#graves + 1] = {id, grave_of(id)} end
    named[id] = true
  end
  if count > 0 then return graves, '' end
  local page = redis.call('XRANGE', dead, from, to, 'COUNT', limit)
  for _, found in ipairs(page) do
    local id = field(found[2], 'id')
    graves[#graves + 1] = {id ~= '' and id or found[1], found[1]}
  end
  return graves, #page == tonumber(limit) and page[#page][1] or ''
end
