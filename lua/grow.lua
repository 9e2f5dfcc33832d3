-- Register a queue, or have it grow: it never has fewer partitions than before.
-- KEYS: registry
-- ARGV: now_ms queue partitions keyed
--   keyed: over how many partitions the keys of a new queue are dealt out, '' over all of them. It never changes: equal
--   keys meet in one partition however often the queue grows
-- Returns NEW partitions keyed | GROWN partitions keyed | KNOWN partitions keyed : as they stand now
local registry = KEYS[1]
local queue, partitions, keyed = ARGV[2], ARGV[3], ARGV[4]

local known = redis.call('HMGET', registry, queue, queue .. '/keyed')
if not known[1] then
  redis.call('HSET', registry, queue, partitions)
  if keyed ~= '' and keyed ~= partitions then redis.call('HSET', registry, queue .. '/keyed', keyed) end
  return {'NEW', partitions, keyed ~= '' and keyed or partitions}
end
keyed = known[2] or known[1]
if tonumber(partitions) <= tonumber(known[1]) then return {'KNOWN', known[1], keyed} end
redis.call('HSET', registry, queue, partitions, queue .. '/keyed', keyed)
return {'GROWN', partitions, keyed}
