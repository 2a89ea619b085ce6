-- raise.lua: lift the fencing counter to what the quorum counted, on a node
-- that counted less.
--
-- KEYS[1] lock key, KEYS[2] fencing counter
-- ARGV[1] attempt id             ARGV[2] counter that came with the grant here
-- ARGV[3] counter to reach       ARGV[4] counter TTL, ms
--
-- Reply {code, 0, node time in us, 0}:
--   10 raised   the counter is at least ARGV[3]
--   11 unheld   the key is not held by exactly that grant: nothing was done
--
-- The test is for the id and the counter: with a request that was sent twice, an
-- attempt can hold a node twice with a foreign grant in between, and by the id
-- alone two leases then got one token.
--
-- Source: ALGORITHM section 4.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] .. '|' .. ARGV[2] then return {11, 0, now, 0} end
local counter = tonumber(redis.call('GET', KEYS[2]) or '0')
if counter < tonumber(ARGV[3]) then
  redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
end
return {10, 0, now, 0}
