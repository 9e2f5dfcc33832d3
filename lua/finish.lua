-- Settle the runs a worker ended, then claim the next ones for it.
-- Only the owner ends a run: each outcome counts only while the job's lock says `worker#fence`. One exception:
-- a success whose lease ran out is taken while no newer run was claimed, and the waiting redelivery withdrawn.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms worker lease_ms limit turn count [outcome id fence entry a b c]...
--   SUCCEEDED: a result ('' none) b retention_ms c key     CANCELLED: a reason b retention_ms c key
--   RETRY: a error b delay_ms                              DEAD: a error c key
--   RELEASED: b delay_ms (no attempt is used)              UNKNOWN: a error b delay_ms c grace_ms
-- Returns FINISHED notes gate look_ms [entry id fence attempt fields]... : notes is one array [id status]..., with
--   only what was not plainly settled: STALE, LATE (a late success taken), REPEATED (settled before) or DEAD; gate
--   is what holds up further jobs: PAUSED, FULL, RATED, MORE (see claim) or ''
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
-- @include lib/trimming.lua
-- @include lib/outcomes.lua
-- @include lib/settling.lua
local worker, lease_ms, limit, turn = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local count = tonumber(ARGV[6])

local notes = {}
local owned, holders = take_locks(worker, count)
for run = 1, count do
  local note = settle(owned[run], holders[run], unpack(ARGV, run * 7, run * 7 + 6))
  if note then
    notes[#notes + 1] = ARGV[run * 7 + 1]
    notes[#notes + 1] = note
  end
end
settle_batch()

local allowed, gate, look_ms = allowance(limit)
local answer, claimed = {'FINISHED', notes, gate, look_ms}, 0
if allowed > 0 then claimed = claim_up_to(allowed, {}, worker, lease_ms, turn, answer, 3) end
-- Who takes all it can may leave places for others.
if claimed == limit then tell_of_places() end
return answer
