-- Move due jobs to their ready streams, if this scheduler holds (or gets) the partition's lease.
-- KEYS: base scheduled dead stats lease
-- ARGV: now_ms owner lease_ms limit
-- Returns HELD holder ttl_ms | PROMOTED count next_run_at now_us next_fire_at unread left : next_run_at is '' when
--   nothing waits, next_fire_at when no schedule does. Where the limit was reached, unread is how many ready
--   entries were delivered to nobody yet, and left how many jobs are still due, '' where jobs differ in priority
-- @include lib/partition.lua
-- @include lib/full.lua
-- @include lib/keys.lua
-- @include lib/ready.lua
-- @include lib/crons.lua
-- @include lib/occurrences.lua
-- @include lib/ending.lua
-- @include lib/moving.lua
-- @include lib/promoting.lua
local lease = KEYS[5]
local given_ms, owner, lease_ms, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

return held_by_another(lease, owner, lease_ms) or (promote(limit, given_ms))
