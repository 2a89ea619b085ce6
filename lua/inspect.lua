-- inspect: what this node has of a lock. It changes nothing.
--
-- KEYS[1] lock key  KEYS[2] fencing counter
--
-- Reply {value of the lock key, ms until it expires or -1 for never, counter}. The first is
-- empty if there is no key; a key that holds something else than a string has a TTL of -3.
--
-- Source: ALGORITHM section 2.
local function get(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then error(value) end
  return value
end
local held = get(KEYS[1])
local counter = get(KEYS[2])
if type(counter) ~= 'string' then counter = '' end
if type(held) == 'table' then return {'', -3, counter} end
if not held then return {'', -2, counter} end
return {held, redis.call('PTTL', KEYS[1]), counter}
