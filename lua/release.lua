-- release.lua: delete the lock key if the attempt still holds it.
--
-- KEYS[1] lock key, KEYS[2] fencing counter
-- ARGV[1] attempt id
-- ARGV[2] counter that came with the grant here, 0 = none or unknown
-- ARGV[3] counter of the lease, 0 = there was no lease
-- ARGV[4] counter TTL, ms
--
-- Reply {code, 0, 0, 0}:
--   30 released  the key was ours and is deleted
--   31 gone      the key is missing or another's: nothing was done
--
-- The key goes first: a node that is out of memory deletes but does not set, and
-- a counter that was not raised costs the next attempt one round trip, no more.
-- The counter need not be looked at where it came with the grant as the lease has
-- it. There is no node time here: reading it would be a fifth of the work.
--
-- Source: ALGORITHM section 5.
local held = redis.pcall('GET', KEYS[1])
local own = ARGV[1] .. '|'
local exact = held == own .. ARGV[2]
if not exact and (type(held) ~= 'string' or string.sub(held, 1, #own) ~= own) then
  return {31, 0, 0, 0}
end
redis.call('DEL', KEYS[1])
if exact and ARGV[2] ~= '0' and ARGV[3] ~= '0' and ARGV[2] ~= ARGV[3] then
  local counter = redis.pcall('GET', KEYS[2])
  if type(counter) == 'string' and (tonumber(counter) or 0) < tonumber(ARGV[3]) then
    redis.pcall('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
  end
end
return {30, 0, 0, 0}
