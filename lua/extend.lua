-- extend.lua: lengthen the life of the lock key, or set it where it is missing.
--
-- KEYS[1] lock key, KEYS[2] fencing counter
-- ARGV[1] attempt id          ARGV[2] TTL, ms
-- ARGV[3] not after, us of this node's clock; 0 = no limit
-- ARGV[4] counter TTL, ms
-- ARGV[5] counter that came with the grant here, 0 = none
-- ARGV[6] counter of the lease
--
-- Reply {code, 0, node time in us, 0}:
--   20 kept     the key was ours and now lives for at least the TTL
--   22 filled   the key was missing and is now set
--   24 taken    the key is another's: nothing was done
--   5  late, 7 badtype  as in acquire.lua
--
-- A life is never shortened, and a counter never created: a node that lost its
-- counter starts it by its own clock at the next grant.
--
-- Source: ALGORITHM section 6.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local notAfter = tonumber(ARGV[3])
if notAfter > 0 and now > notAfter then return {5, 0, now, 0} end

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return {7, 0, now, 1} end
if not held then
  redis.call('SET', KEYS[1], ARGV[1] .. '|0', 'PX', ARGV[2])
  return {22, 0, now, 0}
end
local own = ARGV[1] .. '|'
if string.sub(held, 1, #own) ~= own then return {24, 0, now, 0} end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if ARGV[5] ~= '0' and held == own .. ARGV[5] then
  -- The counter of a held lock is not idle: its life starts anew. A node that
  -- refuses this write (out of memory) keeps the lock all the same.
  local counter = redis.pcall('GET', KEYS[2])
  if type(counter) == 'string' then
    if (tonumber(counter) or 0) < tonumber(ARGV[6]) then
      redis.pcall('SET', KEYS[2], ARGV[6], 'PX', ARGV[4])
    else
      redis.pcall('PEXPIRE', KEYS[2], ARGV[4])
    end
  end
end
return {20, 0, now, 0}
