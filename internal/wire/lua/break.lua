-- break: replace a holder's key, if it is still as it was seen, by a placeholder that no attempt
-- owns. The placeholder lives for as long as the key would have lived.
--
-- KEYS[1] lock key
-- ARGV[1] value that was seen  ARGV[2] value to put in its place: ~broken:<attempt id>|0
-- ARGV[3] life of a key that has no end, ms
--
-- Reply {1 if the placeholder is there, 0 if the key holds something else by now or is gone; ms
-- that the placeholder still lives}.
--
-- The key is not deleted. Its holder would take the node for one that has lost data, and set the
-- key again. And the holder believes for that long that no other process can have the lock. The
-- placeholder has the attempt's id, and the release of that attempt deletes it: by then the
-- holder does not believe in its lease any more.
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
