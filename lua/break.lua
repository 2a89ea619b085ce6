-- break: put another holder's key in the place of one that was seen, for as long as that
-- one would still have been there.
--
-- KEYS[1] lock key
-- ARGV[1] value that was seen  ARGV[2] value to put in its place
-- ARGV[3] life of a key that has no end, ms
--
-- Reply {1 if the key is broken, 0 if it holds something else by now or is gone; ms that it
-- still lives}.
--
-- Not deleted: its holder would take the node for one that has lost data, and set it
-- again; and believes for as long that nobody else can have the lock.
--
-- Source: ALGORITHM section 5.
local held = redis.call('GET', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if held == ARGV[2] then return {1, left} end
if held ~= ARGV[1] then return {0, 0} end
if left < 0 then left = tonumber(ARGV[3]) end
left = math.max(left, 1)
redis.call('SET', KEYS[1], ARGV[2], 'PX', left)
return {1, left}
