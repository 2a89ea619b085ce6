-- release: delete the lock key if the attempt still holds it, or the placeholder in its place.
-- The process that sends it does not wait for the resource any more.
--
-- First argument: the value that the key has if the grant here still stands: attempt id, '|' and
-- the counter that came with it, 0 = none or unknown. Second: counter of the lease, 0 = there was
-- no lease, '=' = the counter that came with the grant.
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
-- At the queue node a release calls the next process if no attempt has the key; the key need not
-- have been ours here. If another attempt has the key, the end of that attempt calls.
--
-- Source: ALGORITHM sections 5 and 10, "release".

-- released tells the queue that an attempt has ended here. held has the present value of the key.
local function released(key, who, held, target)
  if crowded(key) then
    leave(key, who)
    callNext(key, held)
  end
  if held and target ~= '0' then miss(key) end
end

-- drop deletes the key if it is the attempt's, or the placeholder in its place. It returns the
-- code, and what the key held.
local function drop(key, value)
  local held = get(key)
  if held ~= value and not owns(held, value) then return 31, held end
  call('DEL', key)
  return 30, held
end

local function release(key, value, target, who)
  local code, held = drop(key, value)
  if target ~= '=' and target ~= '0' and held == value then lift(key .. '~fence', value, target) end
  if who then released(key, who, code == 31 and held, target) end
  return code, 0, 0
end

-- rested puts a process into the queue after an attempt that failed. held has the present value of the
-- key.
local function rested(key, value, who, held)
  join(key, who)
  local called, missed = turn(key)
  if not called and (missed or string.sub(value, -2) == '|0') then callNext(key, held) end
end

-- rest: delete the key as release does, at the queue node, after an attempt that failed. The
-- process goes on waiting, and joins the queue.
--
-- First argument: as in release; a counter of 0 says that this node refused. The second is not
-- used. The codes are those of release.
--
-- The holder may have released since the attempt asked. So if no attempt has the key, and no
-- process has been called, the head of the queue is called. But if this node had granted, a
-- quorum of the nodes refused: another process may have the resource without this node. A call
-- would be in vain then, unless a release was missed.
--
-- Source: ALGORITHM section 10, "rest".
local function rest(key, value, _, who)
  local code, held = drop(key, value)
  rested(key, value, who, code == 31 and held)
  return code, 0, 0
end
