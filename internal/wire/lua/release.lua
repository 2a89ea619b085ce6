-- release: delete the lock key if the attempt still holds it, or the placeholder in its place.
-- The process that sends it does not wait for the resource any more.
--
-- First argument: the value that the key has if the grant here still stands: attempt id, '|' and
-- the counter that came with it, 0 = none or unknown. Second: counter of the lease, 0 = there was
-- no lease, '=' = the counter that came with the grant, -1 = the sender has the token alone: a holder that
-- still renews is told that its attempt is void here, and does not take the missing key for lost data.
--
--   30 released  the key was ours, or the placeholder in its place, and is deleted
--   31 gone      the key is missing or another's: nothing was done
--   26 adopted   the attempt is void here (adopt.lua): nothing was done, nor in the queue
--
-- The key is deleted first: a node that is out of memory can still do that, and a counter that
-- was not raised costs the next attempt one round trip and no more. Where the grant came with the
-- counter of the lease there is nothing to raise.
--
-- A placeholder (break.lua) keeps other processes out for as long as the holder may believe in
-- its lease. A release says that the holder does not: the attempt has ended before it was sent.
--
-- At the queue node the process leaves the queue. If the key is free then, the process that has the turn
-- is told again, as it may have met this attempt on other nodes, and otherwise the head gets the turn. If
-- another attempt has the key, a mark is left for the end of that attempt. Counter: how many processes wait,
-- and one more if another attempt has the key.
--
-- Source: ALGORITHM sections 5 and 10, "release".

-- released tells the queue that an attempt has ended here. held has the present value of the key. reads says
-- that it was that of a reader, which is not in the way of readers.
local function released(key, who, held, reads)
  local wanted = held and held ~= sign and 1 or 0
  if crowded(key) then
    leave(key, who)
    if isNone(key) then return wanted end
    wanted = wanted + others(key, reads and readersTurn or who)
    local called = turn(key)
    if called then
      if lets(held, called) and not (reads and called == readersTurn) then callAgain(key, called) end
    else
      if not held then try('DEL', key .. '~turn') end -- the mark and the note
      attend(key, held)
    end
  end
  if held and not turn(key) then try('SET', key .. '~turn', '-', 'PX', turnMillis) end
  return wanted
end

-- dropKey deletes the key if it is the attempt's, or the placeholder in its place. It returns the
-- code, and what the key held.
local function dropKey(key, value)
  local held = get(key)
  if held ~= value and not owns(held, value) then return 31, held end
  call('DEL', key)
  full = nil
  return 30, held
end

local function release(key, value, target, who)
  local life = target == '-1' and call('PTTL', key)
  local code, held = dropKey(key, value)
  if code == 31 and target ~= '0' and adopted(key, value) then return 26, 0, 0 end
  if life then pcall(void, key, value, life) end
  if target ~= '=' and target ~= '0' and held == value then lift(key .. '~fence', value, target) end
  return code, who and released(key, who, code == 31 and held) or 0, 0
end

-- rested puts a process into the queue, with an attempt that failed or without one. held has the present value of the
-- key. It returns 1 if the process has the turn, of several keys the number of the key; otherwise for how many ms what is
-- in the way lasts, below 0; 0 = not known. And it returns how many processes wait before it, or -1 if it is in no queue.
local function rested(key, value, target, who, held)
  target = tonumber(target)
  local polls = target % 2 == 0
  local several = queueOf(key) ~= key and math.min(math.floor(target / 2), mostSeveral) or 0
  if several > 0 and (string.sub(value, -2) ~= '|0' or not lets(held, who)) and turn(key) == who then -- the turn was in vain
    try('DEL', key .. '~turn')
  end
  local its, before = join(key, who, polls)
  if isNone(key) then return attendAll(queueOf(key), several, who, polls, its, before), place(key, who) or -1 end
  if held == sign then held = settle(key) end
  local called, left = turn(key)
  local mark = left
  local granted = string.sub(value, -2) ~= '|0'
  if called then -- while the process was refused
    if granted or not lets(held, who) then called = nil end
  elseif granted and mark ~= '-' then
    if not held then try('SET', key .. '~turn', '=', 'PX', noteMillis) end
  else
    if mark == '-' and not held then try('DEL', key .. '~turn') end
    called, left = attend(key, held, who)
  end
  if several > 0 then return attendAll(queueOf(key), several, who, polls, turnOf(key, who), before), place(key, who) or -1 end
  local mine = called and has(called, who) and not (isReader(who) and behindWriter(key, who))
  if held and (not called or not lets(held, who)) then left = lifeOf(key, held, who) end
  return mine and 1 or type(left) == 'number' and left > 0 and -left or 0, place(key, who) or -1
end

-- rest: delete the key as release does, at the queue node, after an attempt that failed. The
-- process goes on waiting, and joins the queue.
--
-- First argument: as in release; a counter of 0 says that this node refused, or has not been heard. Second:
-- 1 if the process listens, 0 if it polls, and twice the number of keys if it waits for any of several. Codes
-- 30 and 31 are as in release. Counter and extra: as rested returns them.
--
-- The holder may have released since the attempt asked, so the head of the queue is attended to. But if this
-- node had granted, a quorum of the nodes refused: another process may have the resource without this
-- node. A turn would be in vain then, and the note says so, unless a mark says that an end was missed.
--
-- Source: ALGORITHM section 10, "rest".
local function rest(key, value, target, who)
  local code, held = dropKey(key, value)
  return code, rested(key, value, target, who, code == 31 and held)
end
