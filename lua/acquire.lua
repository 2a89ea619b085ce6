-- acquire: take the lock key for one attempt, and count its fencing tokens.
--
-- at+1 attempt id      at+2 TTL, ms
-- at+3 not after, us of this node's clock; 0 = no limit
-- at+4 where a missing counter should start, us; 0 = no wish
-- at+5 at the gate alone: who waits (queue.lua)
--
--   1 granted  counter given with this grant; extra: how many wait at this gate
--   2 mine     the attempt holds the key already; counter as given then
--   3 busy     extra: ms until the other's key expires, -1 = never; counter: how many wait.
--              At the gate, no more than 50 ms for a client of another library: when that
--              releases, nobody is called.
--   4 planted  the key is set, but this is no vote; extra: ms until this node has one
--   5 late     the request arrived after at+3: nothing was done
--   6 stale    the caller's run id is not this server's: nothing was done
--   7 badtype  extra: 1 or 2, the key that is no string, or no number
--   8 queued   nobody has the key, but another process has been called; counter: how many
--              wait; extra: ms until its turn is over
--
-- A node without a vote holds the place all the same: it keeps the others out of the
-- attempt's way, and leaves the counter alone.
--
-- Source: ALGORITHM sections 3, 8 and 10.
local abrupt = 50
local function acquire(key, counterKey, at, gate)
  local now, notAfter = time(), tonumber(argv[at + 3])
  if notAfter > 0 and now > notAfter then return 5, 0, 0 end
  if not left then return 6, 0, 0 end
  local own, who = argv[at + 1] .. '|', gate and argv[at + 5]
  local crowd = who and crowded(key)
  if crowd then
    local called = try('GET', key .. '~turn')
    if type(called) == 'string' and called ~= who then
      return 8, join(key, who), call('PTTL', key .. '~turn')
    end
  end
  if left > 0 and call('SET', key, own .. '0', 'NX', 'PX', argv[at + 2]) then
    if crowd then leave(key, who) end
    return 4, 0, left
  end

  local counter = get(counterKey)
  if type(counter) == 'table' then return 7, 0, 2 end
  if counter then
    counter = tonumber(counter)
    -- Above 2^53 a number is not exact any more.
    if not counter or counter % 1 ~= 0 or counter < 0 or counter > 9e15 then return 7, 0, 2 end
    counter = counter + block
  else
    counter = now
    local hint = tonumber(argv[at + 4])
    if now <= hint and hint <= now + 1000000 then counter = hint end
  end
  local text = string.format(whole, counter)

  -- The free lock is the common case: it is told by the SET itself.
  if left == 0 and call('SET', key, own .. text, 'NX', 'PX', argv[at + 2]) then
    call('SET', counterKey, text, 'PX', counterTTL)
    if not crowd then return 1, counter, 0 end
    leave(key, who)
    return 1, counter, waiting(key)
  end
  local held = get(key)
  if type(held) ~= 'string' then return 7, 0, 1 end
  if string.sub(held, 1, #own) ~= own then
    local rest = call('PTTL', key)
    if not who then return 3, 0, rest end
    if not string.find(held, '|', 1, true) and (rest < 0 or rest > abrupt) then rest = abrupt end
    return 3, join(key, who), rest
  end
  local given = tonumber(string.sub(held, #own + 1)) or 0
  if given > 0 and left == 0 then return 2, given, 0 end
  return 4, 0, left
end

