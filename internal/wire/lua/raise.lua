-- raise: lift the fencing counter of a node that counts less than the quorum's target.
--
-- First argument: as in release. Second: counter to reach.
--
--   10 raised   the counter is at least that
--   11 unheld   the key is not held by exactly that grant: nothing was done
--   12 ahead    the counter to reach is further ahead of this node's clock than one can be; extra: by
--               how many ms; nothing was done
--
-- The test is for the id and the counter. With a request that was sent twice, an attempt can
-- hold a node twice with another attempt's grant in between. With a test for the id alone two
-- leases then got one token.
--
-- Source: ALGORITHM section 4.

-- raiseTo is raise where the key is known to be held.
local function raiseTo(counterKey, target)
  local counter = tonumber(get(counterKey) or 0)
  target = tonumber(target)
  if not counter then return 11, 0, 0 end -- another program has changed it
  if target > time() + ahead then return 12, 0, math.ceil((target - time()) / 1000) end
  if counter < target then keep(counterKey, target) end
  return 10, 0, 0
end

local function raise(key, value, target)
  if get(key) ~= value then return 11, 0, 0 end
  return raiseTo(key .. '~fence', target)
end
