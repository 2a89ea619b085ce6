-- extend: lengthen the life of the lock key, or set it where it is missing.
--
-- at+1 attempt id      at+2 TTL, ms
-- at+3 not after, us of this node's clock; 0 = no limit
-- at+4 counter that came with the grant here, 0 = none
-- at+5 counter of the lease
--
--   20 kept     the key was ours and now lives for at least the TTL
--   21 kept, by a node that has no vote; extra: ms until it has one
--   22 filled   the key was missing and is now set
--   23 filled, by a node that has no vote; extra as above
--   24 taken    the key is another's: nothing was done
--   25 taken away  a placeholder is in place of our key (break.lua): nothing was done
--   5  late, 6 stale, 7 badtype  as in acquire
--
-- A life is never shortened, and a counter is never created: a node that lost its counter
-- starts a new one from the clocks at the next grant.
--
-- Source: ALGORITHM sections 6 and 8.
local function extend(key, counterKey, at)
  local notAfter = tonumber(argv[at + 3])
  if notAfter > 0 and time() > notAfter then return 5, 0, 0 end
  if not left then return 6, 0, 0 end

  local held = get(key)
  if type(held) == 'table' then return 7, 0, 1 end
  if not held then
    call('SET', key, argv[at + 1] .. '|0', 'PX', argv[at + 2])
    if left > 0 then return 23, 0, left end
    return 22, 0, 0
  end
  local own = argv[at + 1] .. '|'
  if held == placeholder(argv[at + 1]) then return 25, 0, 0 end
  if string.sub(held, 1, #own) ~= own then return 24, 0, 0 end
  if call('PTTL', key) < tonumber(argv[at + 2]) then call('PEXPIRE', key, argv[at + 2]) end
  if argv[at + 4] ~= '0' and held == own .. argv[at + 4] then
    lift(counterKey, argv[at + 5]) -- the counter of a held lock is not idle
  end
  if left > 0 then return 21, 0, left end
  return 20, 0, 0
end

