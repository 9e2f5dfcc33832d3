-- Mend one job that a foreign hand has broken. It is looked at anew, so nothing that is sound is touched.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms id count [entry]... : where an audit saw the id; the job's own entry is looked at anyway
-- Returns SOUND | MENDED [what]... : what was done, in words
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/limits.lua
-- @include lib/slots.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
-- @include lib/looking.lua
-- @include lib/mends.lua
-- @include lib/mending.lua
local id, count = ARGV[2], tonumber(ARGV[3])

local job, flat = read_job(id)
local entries = {}
for index = 4, 3 + count do entries[ARGV[index]] = true end
if job.entry and job.entry ~= '' then entries[job.entry] = true end

local state = job.state or 'PENDING'
if not job.task then
  mend_stranger(id, flat, entries)
elseif state == 'SUCCEEDED' or state == 'CANCELLED' then
  mend_ended(id, job, entries)
else
  if not right[state] then
    redis.call('HDEL', job_key(id), 'state')
    did('removed a state that does not exist')
    state, job.state = 'PENDING', nil
  end
  mend_fields(id, job)
  mend_kept(id, job, state, entries)
end
if #done == 0 then return {'SOUND'} end
return {'MENDED', unpack(done, 1, math.min(#done, 1000))}
