-- release: delete the lock key if the attempt still holds it, or the placeholder in its place.
-- The process that sends it does not wait for the resource any more.
--
-- at+1 attempt id
-- at+2 counter that came with the grant here, 0 = none or unknown
-- at+3 counter of the lease, 0 = there was no lease
-- at+4 at the queue node alone: the process that does not wait any more (queue.lua)
--
--   30 released  the key was ours, or the placeholder in its place, and is deleted
--   31 gone      the key is missing or another's: nothing was done
--
-- The key is deleted first: a node that is out of memory can still do that, and a counter that
-- was not raised costs the next attempt one round trip and no more. Where the grant came with the
-- counter of the lease there is nothing to raise.
--
-- A placeholder (break.lua) keeps other processes out for as long as the holder may believe in
-- its lease. A release says that the holder does not: the attempt has ended before it was sent.
--
-- Source: ALGORITHM section 5.

-- drop deletes the key if it is the attempt's, or the placeholder in its place. It returns the
-- code, and what the key held.
local function drop(key, id)
  local held = get(key)
  if held ~= placeholder(id) and (type(held) ~= 'string' or string.sub(held, 1, #id + 1) ~= id .. '|') then
    return 31, held
  end
  call('DEL', key)
  return 30, held
end

-- At the queue node a release calls the next process if no attempt has the key; the key need not
-- have been ours here. If another attempt has the key, the end of that attempt calls.
--
-- Source: ALGORITHM section 10, "release".
local function release(key, counterKey, at, atQueueNode)
  local id, given, target = argv[at + 1], argv[at + 2], argv[at + 3]
  local code, held = drop(key, id)
  if given ~= '0' and target ~= '0' and given ~= target and held == id .. '|' .. given then
    lift(counterKey, target)
  end
  if not atQueueNode then return code, 0, 0 end
  local free = code == 30 or not held
  if crowded(key) then
    leave(key, argv[at + 4])
    if free then callNext(key) end
  end
  if not free and target ~= '0' then miss(key) end
  return code, 0, 0
end

-- rest: delete the key as release does, at the queue node, after an attempt that failed. The
-- process goes on waiting, and joins the queue.
--
-- at+1 attempt id
-- at+2 counter that came with the grant here; 0 = this node refused
-- at+3 the process that waits
--
-- The codes are those of release.
--
-- The holder may have released since the attempt asked. So if no attempt has the key, and no
-- process has been called, the head of the queue is called. But if this node had granted, a
-- quorum of the nodes refused: another process may have the resource without this node. A call
-- would be in vain then, unless a release was missed.
--
-- Source: ALGORITHM section 10, "rest".
local function rest(key, _, at)
  local code, held = drop(key, argv[at + 1])
  join(key, argv[at + 3])
  if code == 31 and held then return code, 0, 0 end
  local called, missed = turn(key)
  if not called and (argv[at + 2] == '0' or missed) then callNext(key) end
  return code, 0, 0
end

