-- Taking: due jobs that no scheduler has moved yet become runs of a worker that has found nothing else.
-- Needs: partition, keys, ready, ending, delivering, beginning, moving.

-- For who knows that the ready streams hold nothing new. Most runs begin on the way, with one write to the job's hash:
-- herds are drained so, and each step counts. What needs a slot, or will not run, is left to the claim.
-- Returns the entries that are left, as read_entries does.
local function take_due(limit, worker, lease_ms, answer)
  local begun, job, flat, fence = {}, nil, nil, nil
  local look = function(key)
    job, flat = read_hash(key)
    return job.task, job.priority, job.state, job.entry
  end
  local note = function(key, entry, due_at, state, id)
    job.due_at, flat[#flat + 1], flat[#flat + 2] = due_at, 'due_at', due_at
    fence = (fence or take_fences(limit)) + 1
    begun[entry] = not job.concurrency_key and not unrun(job, entry)
      and begin(id, job, flat, entry, text(fence), worker, lease_ms, answer, 'entry', entry, 'due_at', due_at)
    if not begun[entry] then note_place(key, entry, due_at, state) end
  end
  local _, added = move_due(limit, look, note)

  local delivered, left = {}, {}
  for priority = 0, 9 do
    local count = added[tostring(priority)]
    if count then read_into(delivered, priority, worker, count) end
  end
  for _, found in ipairs(delivered) do
    if not begun[found[1]] then left[#left + 1] = found end
  end
  return left
end
