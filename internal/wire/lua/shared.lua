-- shared: the requests of a reader. They do for a reader what acquire.lua, raise.lua, extend.lua and
-- release.lua do for a writer, with the same arguments and codes.
--
-- Source: ALGORITHM section 12.

-- shared makes the functions, which only a call with a request of a reader needs.
local function shared()
  local function millis() return math.floor(time() / 1000) end

  -- put adds a reader, or lengthens its life. No life is shortened. missing says that the key is. The
  -- set is written before the key: what fails in between leaves nothing that counts.
  local function put(key, id, ttl, missing)
    local readers, known = key .. '~readers', 0
    ttl = tonumber(ttl)
    if missing then
      call('DEL', readers)
    else
      known = tonumber(call('ZSCORE', readers, id) or 0)
    end
    local ends, life = millis() + ttl, string.format('%.0f', ttl)
    if known < ends then call('ZADD', readers, string.format('%.0f', ends), id) end
    if missing or call('PTTL', readers) < ttl + 1000 then call('PEXPIRE', readers, string.format('%.0f', ttl + 1000)) end
    if missing then
      call('SET', key, sign, 'PX', life)
    elseif call('PTTL', key) < ttl then
      call('PEXPIRE', key, life)
    end
  end

  -- reads returns what readers have of a key: false if it is missing, the sign, or another value. It
  -- drops the readers whose life is over.
  local function reads(key)
    local held = get(key)
    if held == sign then return settle(key) end
    return held
  end

  -- A reader reserves no tokens: its counter is that of the writer before it. So counters that agree
  -- stay so, however many readers come. Extra, for a grant: at the queue node, how many processes wait;
  -- at any other node, how many other readers there are.
  --
  -- A reader never overtakes the queue: it is granted if no writer stands before it. Otherwise readers that come
  -- one after the other would starve a writer.
  local function acquireShared(key, id, wish, who, ttl, notAfter)
    local now = time()
    if notAfter > 0 and now > notAfter then return 5, 0, 0 end
    local readers = key .. '~readers'
    local dropped = try('ZREMRANGEBYSCORE', readers, '-inf', string.format('%.0f', millis()))
    if type(dropped) == 'table' then
      if string.sub(dropped.err, 1, 9) == 'WRONGTYPE' then return 7, 0, 3 end
      error(dropped)
    end
    local mine = call('ZSCORE', readers, id) -- before anything is set: the user may lack a right
    call('ZREM', readers, '-')
    local count = call('ZCARD', readers)
    local held = reads(key)
    if type(held) == 'table' then return 7, 0, 1 end
    local crowd = who and crowded(key)
    if crowd then
      local called, rest = attend(key, held, who)
      mine = held == sign and mine
      if called and called ~= readersTurn or not mine and lets(held, readersTurn) and behindWriter(key, who) then
        return 8, others(key, readersTurn), called and rest or 1000
      end
    end
    if held and held ~= sign then return busy(key, held, who, crowd) end
    mine = held and mine
    local beside = held and count - (mine and 1 or 0) or 0
    local counter, code, extra = nextCounter(key .. '~fence', now, wish, 0)
    if not counter and code ~= 6 and not voteless then return code, 0, extra end
    if not mine then put(key, id, ttl, not held) end
    if not voteless and not counter then return code, 0, extra end
    if not voteless then keep(key .. '~fence', counter) end
    if crowd then leave(key, who) end
    if voteless then return 4, 0, 0 end
    if who then beside = crowd and others(key, readersTurn) or 0 end
    return mine and 2 or 1, counter, beside
  end

  local function raiseShared(key, value, target)
    local ends = get(key) == sign and tonumber(call('ZSCORE', key .. '~readers', idOf(value)) or 0)
    if not ends or ends <= millis() then return 11, 0, 0 end
    return raiseTo(key .. '~fence', target)
  end

  -- The key of a writer of the same attempt becomes that of a reader: the lease was downgraded.
  local function extendShared(key, value, target, _, ttl, notAfter)
    if notAfter > 0 and time() > notAfter then return 5, 0, 0 end
    local held, id = reads(key), idOf(value)
    if type(held) == 'table' then return 7, 0, 1 end
    local kept, filled = 20, 22
    if voteless then kept, filled = 21, 23 end
    if not held then
      if adopted(key, value) then return 26, 0, 0 end
      put(key, id, ttl, true)
      return filled, 0, 0
    end
    if held == sign then
      local mine = call('ZSCORE', key .. '~readers', id)
      if not mine and adopted(key, value) then return 26, 0, 0 end
      put(key, id, ttl, false)
      if not mine then return filled, 0, 0 end
    elseif held == placeholder(sign) or held == placeholder(value) then
      return 25, 0, 0
    elseif owns(held, value) then
      put(key, id, math.max(tonumber(ttl), call('PTTL', key)), true)
      if crowded(key) then attend(key, sign) end
    else
      return adopted(key, value) and 26 or 24, 0, 0
    end
    lift(key .. '~fence', value, target)
    return kept, 0, 0
  end

  -- dropShared ends the life of a reader. It returns the code, and what the key holds then.
  local function dropShared(key, value, target)
    local held = get(key)
    if held == sign then
      local mine = call('ZREM', key .. '~readers', idOf(value)) == 1
      held = settle(key)
      if mine and target ~= '=' and target ~= '0' then lift(key .. '~fence', value, target) end
      return mine and 30 or 31, held
    end
    if not owns(held, value) then return 31, held end
    call('DEL', key)
    return 30, false
  end

  local function releaseShared(key, value, target, who)
    local code, held = dropShared(key, value, target)
    if code == 31 and target ~= '0' and adopted(key, value) then return 26, 0, 0 end
    return code, who and released(key, who, held, true) or 0, 0
  end

  local function restShared(key, value, target, who)
    local code, held = dropShared(key, value, '0')
    return code, rested(key, value, target, who, held)
  end

  return acquireShared, raiseShared, extendShared, releaseShared, restShared
end
