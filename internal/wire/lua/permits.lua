-- permits: the requests of a semaphore. Permit i of K is slot i: a lock of its own, whose key is that of
-- the semaphore, '~' and i. Once the queue node has chosen the slots, they are acquired, extended and
-- released as any lock.
--
-- The lock key is that of the semaphore. It holds nothing itself. The queue, the processes and the
-- turn belong to it.
--
-- Source: ALGORITHM section 14.

-- permits makes the functions, which only a call with a request about permits needs.
local function permits()
  -- has reports whether a slot is an attempt's.
  local function has(value, id) return value and string.sub(value, 1, #id + 1) == id .. '|' end

  -- choose takes slots for an attempt at the queue node: all that it wants or none. The attempt then asks
  -- the other nodes for the same slots. An attempt never overtakes the queue, as a reader does not.
  --
  -- First argument: attempt id. Second, with a space between two: where a missing counter should start,
  -- as for acquire; the number of permits wanted; the number of permits of the semaphore, K; the slot to
  -- begin with.
  --
  --   13 chosen   counter: how many processes wait; extra: 1 if slot K+1 is taken, which says that
  --               another client has a larger K, else 0; then for each slot, after a space:
  --               slot:code:counter:extra as acquire replies
  --   3 busy      fewer are free: nothing was done; counter and extra are those of a slot that is taken
  --   5, 6, 7, 8, 12  as in acquire: nothing was done; counter of 7 and 12: the slot
  local function choose(base, id, what, who, ttl, notAfter)
    local now = time()
    if notAfter > 0 and now > notAfter then return 5, 0, 0 end
    if not left then return 6, 0, 0 end
    local wish, count, of, first = string.match(what, '^(%d+) (%d+) (%d+) (%d+)$')
    count, of, first = tonumber(count), tonumber(of), tonumber(first)
    local values, keys = slots(base, of + 1)
    if values.err then error(values) end
    local mine, free, taken = {}, {}, nil
    for k = 0, of - 1 do
      local i = (first - 1 + k) % of + 1
      if has(values[i], id) then
        mine[#mine + 1] = i
      elseif not values[i] then
        free[#free + 1] = i
      else
        taken = taken or i
      end
    end
    local crowd = who and crowded(base)
    if crowd and #mine < count then
      local called, rest = turn(base)
      if called and called ~= who then return 8, others(base, who), rest end
      if not called and behind(base, who) then return 8, others(base, who), 1000 end
    end
    for _, i in ipairs(free) do mine[#mine + 1] = i end

    local got, refused = {}, nil
    for _, i in ipairs(mine) do
      if #mine < count or #got == count then break end
      local code, counter, extra = acquire(keys[i], id, wish, nil, ttl, 0)
      if code == 1 or code == 2 or code == 4 or code == 9 then
        got[#got + 1] = string.format('%d:%d:' .. whole .. ':%d', i, code, counter, extra)
      else -- another program has put something there
        refused = {code, i, extra}
      end
    end
    if #got < count then
      for _, one in ipairs(got) do call('DEL', keys[tonumber(string.match(one, '^%d+'))]) end
      if not taken then return refused[1], refused[2], refused[3] end
      return 3, crowd and others(base, who) or 0, leftOf(keys[taken], values[taken])
    end
    if crowd then
      leave(base, who)
      callNext(base, sign)
    end
    return 13, crowd and waiting(base) or 0, (values[of + 1] and '1 ' or '0 ') .. table.concat(got, ' ')
  end

  -- dropSlots deletes all slots of an attempt. of is the number of permits of the semaphore.
  local function dropSlots(base, value, of)
    of = tonumber(of)
    local values, keys = slots(base, of)
    if values.err then error(values) end
    local code = 31
    for i = 1, of do
      if owns(values[i], value) then
        call('DEL', keys[i])
        code = 30
      end
    end
    return code
  end

  -- The arguments of release and rest are those of release.lua, with the number of permits in the place
  -- of the second. A counter of 0 in the first says that this node refused.
  local function releasePermits(base, value, of, who)
    local code = dropSlots(base, value, of)
    if who and crowded(base) then
      leave(base, who)
      callNext(base, sign)
    end
    return code, 0, 0
  end

  local function restPermits(base, value, of, who)
    local code = dropSlots(base, value, of)
    rested(base, value, who, sign)
    return code, 0, 0
  end

  return choose, releasePermits, restPermits
end
