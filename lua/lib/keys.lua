-- Keys that depend on a job, reached by the one declared prefix `base`, in its slot.

local function job_key(id) return base .. 'job:' .. id end
local function lock_key(id) return base .. 'lock:' .. id end
local function idem_key(key) return base .. 'idem:' .. key end
local function done_key(key) return base .. 'done:' .. key end
local function ready_key(priority) return base .. 'ready:' .. priority end

-- An entry is written `priority/stream id` in a job's hash and on the wire.
local function split_entry(entry)
  return string.sub(entry, 1, 1), string.sub(entry, 3)
end

local function field(values, name)
  for index = 1, #values, 2 do
    if values[index] == name then return values[index + 1] end
  end
  return ''
end

-- Returns the group of the workers, flat, {} where there is none: a stream may have other groups beside it.
local function workers_group(priority)
  local groups = redis.pcall('XINFO', 'GROUPS', ready_key(priority))
  for _, group in ipairs(groups.err and {} or groups) do
    if field(group, 'name') == 'workers' then return group end
  end
  return {}
end

-- Returns a hash as a table, and flat as it came.
local function read_hash(key)
  local values, flat = {}, redis.call('HGETALL', key)
  for index = 1, #flat, 2 do values[flat[index]] = flat[index + 1] end
  return values, flat
end

local function read_job(id) return read_hash(job_key(id)) end
