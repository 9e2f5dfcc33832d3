-- Make a partition ready for a worker: its streams and groups, and what its tasks allow.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms lease_ms count [task max_retries]...
-- Returns JOINED
-- @include lib/partition.lua
-- @include lib/full.lua
-- @include lib/keys.lua
local lease_ms, count = tonumber(ARGV[2]), tonumber(ARGV[3])

for priority = 0, 9 do
  local made = redis.pcall('XGROUP', 'CREATE', ready_key(priority), 'workers', '0', 'MKSTREAM')
  if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
end
-- Recovery knows a task only by this: it may run where no task is imported.
if count > 0 then redis.call('HSET', base .. 'tasks', unpack(ARGV, 4, 3 + count * 2)) end
-- The shortest lease in use tells recovery from when on an entry is worth a look.
local shortest = tonumber(redis.call('HGET', stats, 'lease_ms'))
if lease_ms > 0 and (not shortest or lease_ms < shortest) then
  redis.call('HSET', stats, 'lease_ms', text(lease_ms))
end
return {'JOINED'}
