-- raise: lift the fencing counter of a node that counts less than the quorum's target.
--
-- at+1 attempt id     at+2 counter that came with the grant here
-- at+3 counter to reach
--
--   10 raised   the counter is at least at+3
--   11 unheld   the key is not held by exactly that grant: nothing was done
--   12 ahead    at+3 is further ahead of this node's clock than a counter can be; extra: by
--               how many ms; nothing was done
--
-- The test is for the id and the counter. With a request that was sent twice, an attempt can
-- hold a node twice with another attempt's grant in between. With a test for the id alone two
-- leases then got one token.
--
-- Source: ALGORITHM section 4.
local function raise(key, counterKey, at)
  if get(key) ~= argv[at + 1] .. '|' .. argv[at + 2] then return 11, 0, 0 end
  local counter, target = tonumber(get(counterKey) or 0), tonumber(argv[at + 3])
  if target > time() + ahead then return 12, 0, math.ceil((target - time()) / 1000) end
  if counter < target then keep(counterKey, target) end
  return 10, 0, 0
end

