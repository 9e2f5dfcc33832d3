-- Claim jobs for a worker: those a blocking read already gave it, then new ones, priority 0 first, then due ones that
-- no scheduler has moved yet.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms worker lease_ms limit turn delivered_count [entry]...
--   turn: the priority that is served one job first this time, or ''
-- Returns CLAIMED gate look_ms [entry id fence attempt fields]... : gate is what holds up further jobs, '' where
--   nothing does: PAUSED, FULL (as many run as may), RATED (as many were started) or MORE (so many ended unrun or
--   were parked that the call ended, there may be more); look again in look_ms
-- @include lib/partition.lua
-- @include lib/full.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
-- @include lib/limits.lua
-- @include lib/slots.lua
-- @include lib/delivering.lua
-- @include lib/beginning.lua
-- @include lib/moving.lua
-- @include lib/taking.lua
-- @include lib/claiming.lua
local worker, lease_ms, limit, turn = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local delivered_count = tonumber(ARGV[6])

-- What was delivered may have been recovered or cancelled since: only what is still pending here counts.
local function still_pending(entry)
  local priority, stream_id = split_entry(entry)
  local pending = redis.call('XPENDING', ready_key(priority), 'workers', stream_id, stream_id, 1, worker)
  if not pending[1] then return nil end
  local entries = redis.call('XRANGE', ready_key(priority), stream_id, stream_id)
  return entries[1] and entries[1][2]
end

-- A read can bring more than there are free slots, or than the limits allow: the rest waits for somebody else.
local function give_back(entry, entry_fields)
  local id, priority = field(entry_fields, 'id'), split_entry(entry)
  local job = read_job(id)
  if not_runnable(id, job, entry, entry_fields) then return end
  drop_entry(entry)
  push_ready(id, priority, 'due_at', text(due_ms(job, entry)))
end

local entries, allowed, gate, look_ms = {}, allowance(limit)
for index = 7, 6 + delivered_count do
  local entry_fields = still_pending(ARGV[index])
  if entry_fields and #entries < allowed then
    entries[#entries + 1] = {ARGV[index], entry_fields}
  elseif entry_fields then
    give_back(ARGV[index], entry_fields)
  end
end
local answer = {'CLAIMED', gate, look_ms}
claim_up_to(allowed, entries, worker, lease_ms, turn, answer, 2)
return answer
