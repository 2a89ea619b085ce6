-- adopt: take the lock key over from another attempt, whose lease was passed on, for an attempt of its own.
--
-- The arguments are those of acquire. In place of the process stands the value that the key has so far: a fill
-- since then is another value, and another holder may have come and gone before it.
--
--   1 granted, 2 mine, 4 set voteless, 5 late, 6 unseeded, 7 badtype, 12 ahead
--                as in acquire
--   24 taken     the key is another's
--   25 taken away  a placeholder is in place of the key (break.lua)
--   26 adopted   another attempt has adopted the lease
--   31 gone      the key is missing
--
-- From then on the former id is void on this node, until no message of that attempt can arrive any more:
-- what it sends changes nothing, see extend.lua and release.lua. That is so where the key is missing,
-- too: the former holder would set it again. The life of the key does not get shorter: the former holder
-- may believe in it, and goes on to do so if no quorum adopts the lease.
--
-- Source: ALGORITHM section 6, "Adopt".

-- adopted reports whether the lease of a value was adopted: its attempt is void here.
local function adopted(key, value)
  return type(try('ZSCORE', key .. '~adopted', idOf(value))) == 'string'
end

-- void has the attempt of a value change nothing here any more, until no message of it can arrive. life is
-- for how long its key can live, ms. Neither the life of the set nor that of an id in it gets shorter: another
-- caller may know of a larger TTL.
local function void(key, value, life)
  local names, id, moment = key .. '~adopted', idOf(value), math.floor(time() / 1000)
  local lasts = math.max(life, math.ceil(1.5 * quarantine))
  call('ZREMRANGEBYSCORE', names, '-inf', string.format('%.0f', moment))
  local ends = math.max(moment + lasts, tonumber(call('ZSCORE', names, id) or 0))
  call('ZADD', names, string.format('%.0f', ends), id)
  if call('PTTL', names) < ends - moment then call('PEXPIRE', names, string.format('%.0f', ends - moment)) end
end

local function adopt(key, id, wish, from, ttl, notAfter)
  local now = time()
  if notAfter > 0 and now > notAfter then return 5, 0, 0 end
  local held = get(key)
  if type(held) == 'table' then return 7, 0, 1 end
  local own = id .. '|'
  if held and string.sub(held, 1, #own) == own then
    local given = tonumber(string.sub(held, #own + 1)) or 0
    if given > now + ahead then return 12, 0, math.ceil((given - now) / 1000) end
    if given > 0 and not voteless then return 2, given, 0 end
    return 4, 0, 0
  end
  if held == placeholder(from) then return 25, 0, 0 end
  local isFormer = held == from
  local counter, code, extra = 0, nil, nil
  if isFormer and not voteless then
    counter, code, extra = nextCounter(key .. '~fence', now, wish, block)
    if code == 7 then return 7, 0, 2 end
    if code == 12 then return 12, 0, extra end
  end
  if not isFormer and adopted(key, from) then return 26, 0, 0 end

  local life = math.max(call('PTTL', key), tonumber(ttl))
  void(key, from, life)
  if not held then return 31, 0, 0 end
  if not isFormer then return 24, 0, 0 end
  call('SET', key, own .. string.format(whole, counter or 0), 'PX', string.format('%d', life))
  if voteless then return 4, 0, 0 end
  if not counter then return 6, 0, extra end
  keep(key .. '~fence', counter)
  return 1, counter, 0
end
