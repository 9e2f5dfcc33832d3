-- Say that a worker or scheduler is alive, and learn who else is.
-- KEYS: registry
-- ARGV: now_ms id ttl_ms : ttl_ms '0' leaves; id '' only looks
-- Returns ATTENDING now [id]...
local registry = KEYS[1]
local given_ms, id, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = given_ms ~= '' and tonumber(given_ms) or tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- First, since it needs no memory: a full server would refuse the others, as a script's first write.
redis.call('ZREMRANGEBYSCORE', registry, '-inf', string.format('(%.0f', now))
if id ~= '' and ttl_ms > 0 then
  redis.call('ZADD', registry, string.format('%.0f', now + ttl_ms), id)
elseif id ~= '' then
  redis.call('ZREM', registry, id)
end
return {'ATTENDING', string.format('%.0f', now), unpack(redis.call('ZRANGE', registry, 0, 7000))}
