-- What every script begins with: the partition's fixed keys, and the one clock.
local base, scheduled, dead, stats = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- The server's time for every host, or the one a test moves.
local function clock_ms(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local now = clock_ms(ARGV[1])

-- Milliseconds and counters as text: Lua would write large numbers with an exponent.
local function text(number)
  return string.format('%d', number)
end
local now_text = text(now)

-- A foreign hand may have written anything anywhere: what is no whole number counts as not said.
local function whole(value)
  return value and #value <= 15 and string.find(value, '^%-?%d+$') and tonumber(value) or nil
end

-- A counter that a foreign hand has overwritten begins again.
local function bump(key, name, by)
  local count = redis.pcall('HINCRBY', key, name, by)
  if type(count) == 'number' then return count end
  if string.find(count.err, 'not an integer', 1, true) then redis.call('HDEL', key, name) end
  return redis.call('HINCRBY', key, name, by)
end
