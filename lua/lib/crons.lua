-- Keys of the schedules that a partition keeps.
-- Needs: partition.

local crons, schedules = base .. 'crons', base .. 'schedules'

local function cron_key(schedule) return base .. 'cron:' .. schedule end
local function held_key(schedule) return base .. 'held:' .. schedule end
local function history_key(schedule) return base .. 'history:' .. schedule end
