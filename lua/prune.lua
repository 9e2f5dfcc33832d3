-- Keep a partition bounded: consumers that are gone, graves over the limit, waiters nobody answered.
-- A consumer goes only when it has nothing pending; looking and deleting are one step.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms consumer_idle_ms dead_limit batch
-- Returns PRUNED consumers graves
-- @include lib/partition.lua
-- @include lib/keys.lua
local consumer_idle_ms, dead_limit, batch = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local function as_table(flat)
  local named = {}
  for index = 1, #flat, 2 do named[flat[index]] = flat[index + 1] end
  return named
end

local consumers = 0
for priority = 0, 9 do
  local found = redis.pcall('XINFO', 'CONSUMERS', ready_key(priority), 'workers')
  for _, flat in ipairs(found.err and {} or found) do
    local consumer = as_table(flat)
    if consumer.pending == 0 and consumer.idle >= consumer_idle_ms then
      redis.call('XGROUP', 'DELCONSUMER', ready_key(priority), 'workers', consumer.name)
      consumers = consumers + 1
    end
  end
end

local over = math.min(redis.call('XLEN', dead) - dead_limit, batch)
local graves = over > 0 and redis.call('XRANGE', dead, '-', '+', 'COUNT', over) or {}
for _, grave in ipairs(graves) do
  local id = as_table(grave[2]).id or ''
  redis.call('XDEL', dead, grave[1])
  if redis.call('HGET', job_key(id), 'entry') == 'dead/' .. grave[1] then redis.call('DEL', job_key(id)) end
end
if #graves > 0 then bump(stats, 'dead_trimmed', #graves) end
redis.call('ZREMRANGEBYSCORE', base .. 'waiting', '-inf', now_text)
return {'PRUNED', tostring(consumers), tostring(#graves)}
