-- Delete dead jobs for good, their records and entries.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms from to limit count [id]... : ids if count > 0, else a page of the dead stream from..to
-- Returns PURGED last [id what]... : last is the last entry looked at, '' at the end; what is OK or NOT_FOUND
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/graves.lua
local from, to, limit, count = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local graves, last = chosen_graves(from, to, limit, count)
local answer = {'PURGED', last}
for _, found in ipairs(graves) do
  local id, grave = found[1], found[2]
  if grave then
    redis.call('XDEL', dead, grave)
    local job = dead_job(id)
    if job and job.entry == 'dead/' .. grave then redis.call('DEL', job_key(id)) end
  end
  answer[#answer + 1] = id
  answer[#answer + 1] = grave and 'OK' or 'NOT_FOUND'
end
return answer
