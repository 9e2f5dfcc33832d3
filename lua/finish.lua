-- Settle the runs a worker ended, then claim the next ones for it.
-- Only the owner ends a run: each outcome counts only while the job's lock says `worker#fence`. One exception:
-- a success whose lease ran out is taken while no newer run was claimed, and the waiting redelivery withdrawn.
-- KEYS: base scheduled dead stats
-- ARGV: now_ms worker lease_ms limit turn count [outcome id fence entry a b c]...
--   SUCCEEDED: a result ('' none) b retention_ms c key     CANCELLED: a reason b retention_ms c key
--   RETRY: a error b delay_ms                              DEAD: a error c key
--   RELEASED: b delay_ms (no attempt is used)              UNKNOWN: a error b delay_ms c grace_ms
-- Returns FINISHED notes [entry id fence attempt fields]... : notes is one array [id status]..., with only what
--   was not plainly settled: STALE, LATE (a late success taken), REPEATED (settled before) or DEAD
-- @include lib/partition.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
-- @include lib/claiming.lua
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

local answer = {'FINISHED', notes}
if limit > 0 then claim_entries(read_entries(worker, limit, turn), worker, lease_ms, answer) end
return answer
