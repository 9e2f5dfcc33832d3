-- Move due jobs as `promote` does, and claim some of them in the same step for a worker that has nothing to do.
-- KEYS: base scheduled dead stats lease
-- ARGV: now_ms owner lease_ms limit worker run_lease_ms most
--   most: how many jobs the worker takes at most
-- Returns HELD holder ttl_ms | PROMOTED count next_run_at now_us next_fire_at unread left gate look_ms
--   [entry id fence attempt fields]... : as promote and claim say; gate is PAUSED, FULL, RATED, MORE or ''
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
-- @include lib/promoting.lua
local lease = KEYS[5]
local given_ms, owner, lease_ms, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local worker, run_lease_ms, most = ARGV[5], ARGV[6], tonumber(ARGV[7])

local held = held_by_another(lease, owner, lease_ms)
if held then return held end
local answer, moved = promote(limit, given_ms)
answer[8], answer[9] = '', '0'
local wanted = math.min(moved, most)
if wanted == 0 then return answer end
local allowed, gate, look_ms = allowance(wanted)
answer[8], answer[9] = gate, look_ms
claim_up_to(allowed, {}, worker, run_lease_ms, '', answer, 8)
return answer
