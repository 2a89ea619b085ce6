-- release: delete the lock key if the attempt still holds it.
--
-- at+1 attempt id
-- at+2 counter that came with the grant here, 0 = none or unknown
-- at+3 counter of the lease, 0 = there was no lease
-- at+4 at the gate alone: who has done with the resource (queue.lua)
--
--   30 released  the key was ours and is deleted
--   31 gone      the key is missing or another's: nothing was done
--
-- The key goes first: a node that is out of memory deletes all the same, and a counter
-- that was not raised costs the next attempt one round trip, no more. Where the grant
-- came with the counter of the lease there is nothing to raise.
--
-- Source: ALGORITHM section 5.
local function drop(key, counterKey, at)
  local held = get(key)
  local own, given, target = argv[at + 1] .. '|', argv[at + 2], argv[at + 3]
  local exact = held == own .. given
  if not exact and (type(held) ~= 'string' or string.sub(held, 1, #own) ~= own) then
    return 31
  end
  call('DEL', key)
  if exact and given ~= '0' and target ~= '0' and given ~= target then
    local counter = get(counterKey)
    if type(counter) == 'string' and (tonumber(counter) or 0) < tonumber(target) then
      try('SET', counterKey, target, 'PX', counterTTL)
    end
  end
  return 30
end

-- release does that, and at the gate calls the next process if nobody has the key: it may
-- never have been ours here.
--
-- Source: ALGORITHM section 10, "wake".
local function release(key, counterKey, at, gate)
  local code = drop(key, counterKey, at)
  if gate and crowded(key) then
    leave(key, argv[at + 4])
    if call('EXISTS', key) == 0 then callNext(key) end
  end
  return code, 0, 0
end

