-- acquire: take the lock key for one attempt, and count its fencing tokens.
--
-- First argument: attempt id. Second: where a missing counter should start, us: at the clocks'
-- median or at most a second ahead of it, 0 = no wish.
--
--   1 granted  counter given with this grant; extra, at the queue node: how many others wait
--   2 mine     the attempt holds the key already; counter as given then
--   3 busy     extra: ms until the other's key expires, -1 = never, and after a space the head of its id,
--              and the label of its owner, if it has one; counter: at the queue node, how many others wait; at any other
--              node, 1 if readers have the key. At the queue node, no more than 50 ms for a client of
--              another library, whose release calls no process.
--   4 set voteless  the key is set, but this is no vote
--   5 late     the request arrived after its latest time: nothing was done
--   6 unseeded the key is set, but this is no vote: the resource has no counter here, or one that
--              may be from before this node lost something, and this node's clock is not known to agree with
--              the others'; extra: ms that it is ahead of them, 0 = not known
--   7 badtype  extra: 1 or 2, the key that is no string, or no number; 3, the readers are no sorted set
--   8 queued   another process has the turn; counter: how many others wait; extra: ms
--              until its turn is over
--   12 ahead   the counter is further ahead of this node's clock than it can be; extra: by
--              how many ms; nothing was done
--
-- A node without a vote sets the key all the same, which keeps other attempts away. It
-- leaves the counter alone.
--
-- Source: ALGORITHM sections 3, 4, 8 and 10.

-- nextCounter returns the counter that a grant would get, which reserves some tokens. If there is
-- none, it returns false, and the code and the extra of the answer. A counter that may be from before this node lost
-- something starts anew from the clocks, but not below its own next value.
local function nextCounter(counterKey, now, wish, tokens)
  local counter, least = get(counterKey), 0
  if type(counter) == 'table' then return false, 7, 2 end
  if counter then
    counter = tonumber(counter)
    if not counter or counter % 1 ~= 0 or counter < 0 then return false, 7, 2 end
    least = counter + tokens
  end
  if counter and counter >= oldest then
    counter = least
  elseif near(now) then
    wish = tonumber(wish)
    counter = math.max(least, median <= wish and wish <= median + 1000000 and wish or median)
  else
    return false, 6, median > 0 and math.floor((now - median) / 1000) or 0
  end
  if counter > now + ahead then return false, 12, math.ceil((counter - now) / 1000) end
  return counter
end

-- lifeOf returns for how many ms another's key lives, as the queue node tells a process.
local abrupt = 50 -- as wire.Abrupt
local function lifeOf(key, held, who)
  local rest = call('PTTL', key)
  if held == sign then -- the life of the readers that are left
    local last = try('ZRANGE', key .. '~readers', '-1', '-1', 'WITHSCORES')[2]
    if last then rest = math.max(0, math.min(rest, tonumber(last) - math.floor(time() / 1000))) end
  end
  if who and type(held) == 'string' and not string.find(held, '|', 1, true) and (rest < 0 or rest > abrupt) then rest = abrupt end
  return rest
end

-- leftOf returns the extra of a busy answer: the life of another's key, and its owner.
local function leftOf(key, held, who)
  local rest, owner = lifeOf(key, held, who), labelOf(key, held)
  if owner then rest = string.format('%.0f %s', rest, owner) end
  return rest
end

-- busy returns the answer where the key is another's.
local function busy(key, held, who, crowd)
  local count = held == sign and 1 or 0
  if who then count = crowd and others(key, who) or 0 end
  return 3, count, leftOf(key, held, who)
end

local voteless, acquire = vote == false, nil
function acquire(key, id, wish, who, ttl, notAfter)
  local now = time()
  if notAfter > 0 and now > notAfter then return 5, 0, 0 end
  local crowd = who and crowded(key)
  if crowd then
    local held = get(key)
    if held == sign then held = settle(key) end
    local called, rest = attend(key, held, who)
    if called and called ~= who then return 8, others(key, who), rest end
  end
  local own = id .. '|'
  if voteless and call('SET', key, own .. '0', 'NX', 'PX', ttl) then
    if crowd then leave(key, who) end
    return 4, 0, 0
  end

  -- The free lock is the common case: it is told by the SET itself.
  local counterKey = key .. '~fence'
  local counter, code, extra = nextCounter(counterKey, now, wish, block)
  if not voteless and counter and call('SET', key, own .. string.format(whole, counter), 'NX', 'PX', ttl) then
    keep(counterKey, counter)
    if not crowd then return 1, counter, 0 end
    leave(key, who)
    return 1, counter, others(key, who)
  end
  local held = get(key)
  if type(held) == 'table' then return 7, 0, 1 end
  if not held then
    if code == 6 then call('SET', key, own .. '0', 'PX', ttl) end
    return code, 0, extra
  end
  if held == sign and not settle(key) then -- the last reader had left it behind
    return acquire(key, id, wish, who, ttl, notAfter)
  end
  if string.sub(held, 1, #own) ~= own then return busy(key, held, who, crowd) end
  local given = tonumber(string.sub(held, #own + 1)) or 0
  if given > now + ahead then return 12, 0, math.ceil((given - now) / 1000) end
  if given > 0 and not voteless then return 2, given, 0 end
  return 4, 0, 0
end
