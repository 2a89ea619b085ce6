-- break: put a placeholder, which is nobody's, in the place of a holder's key that was seen, for
-- as long as that one would still have been there.
--
-- KEYS[1] lock key
-- ARGV[1] value that was seen  ARGV[2] value to put in its place: ~broken:<attempt id>|0
-- ARGV[3] life of a key that has no end, ms
--
-- Reply {1 if the placeholder is there, 0 if the key holds something else by now or is gone; ms
-- that it still lives}.
--
-- Not deleted: its holder would take the node for one that has lost data, and set it
-- again; and believes for as long that nobody else can have the lock. The placeholder has the
-- id of the attempt, whose release deletes it: by then its holder has stopped to believe.
--
-- Source: ALGORITHM section 5.
local held = redis.call('GETRANGE', KEYS[1], 0, 255)
local left = redis.call('PTTL', KEYS[1])
if held ~= ARGV[1] and held ~= ARGV[2] then return {0, 0} end
if held == ARGV[2] and left >= 0 then return {1, left} end
if left < 0 then left = tonumber(ARGV[3]) end
left = math.max(left, 1)
redis.call('SET', KEYS[1], ARGV[2], 'PX', left)
return {1, left}
