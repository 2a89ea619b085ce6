-- extend: lengthen the life of the lock key, or set it where it is missing.
--
-- The arguments are those of release.
--
--   20 kept     the key was ours and now lives for at least the TTL
--   21 kept voteless    as 20, but this node has no vote
--   22 filled   the key was missing and is now set
--   23 filled voteless  as 22, but this node has no vote
--   24 taken    the key is another's: nothing was done
--   25 taken away  a placeholder is in place of our key (break.lua): nothing was done
--   26 adopted  the attempt is void here, as another has adopted the lease or released it by its Handle: nothing was done
--   5  late, 7 badtype  as in acquire
--
-- A life is never shortened, and a counter is never created: a node that lost its counter
-- starts a new one from the clocks at the next grant.
--
-- Source: ALGORITHM sections 6 and 8.
local function extend(key, value, target, _, ttl, notAfter)
  if notAfter > 0 and time() > notAfter then return 5, 0, 0 end
  local held = get(key)
  if type(held) == 'table' then return 7, 0, 1 end
  if held == sign then held = settle(key) end
  if not held or not owns(held, value) then
    if adopted(key, value) then return 26, 0, 0 end
    if held then return 24, 0, 0 end
    call('SET', key, idOf(value) .. '|0', 'PX', ttl)
    if voteless then return 23, 0, 0 end
    return 22, 0, 0
  end
  if held == placeholder(value) then return 25, 0, 0 end
  if call('PTTL', key) < tonumber(ttl) then call('PEXPIRE', key, ttl) end
  if held == value then lift(key .. '~fence', value, target) end -- the counter of a held lock is not idle
  if voteless then return 21, 0, 0 end
  return 20, 0, 0
end
