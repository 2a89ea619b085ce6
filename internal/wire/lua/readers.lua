-- readers: what readers have of a lock key.
--
-- lock key          the sign '~readers|0': readers have the resource
-- lock key~readers  sorted set: the attempt ids of the readers, by the end of the life of each, ms of
--                   this node's clock
--
-- The set counts beneath the sign only. A function that sets the sign where the key is missing deletes
-- the set first: a lock key that was deleted or evicted takes all readers with it, and their renewals
-- notice. Each reader has a life of its own, which its own requests alone change.
--
-- To other requests, and to versions of the library that know no readers, the sign is the value of
-- another holder.
--
-- Source: ALGORITHM section 12. shared.lua has what readers ask for.
local sign = '~readers|0'

-- settle is called where the key holds the sign. It drops the readers whose life is over. If none is
-- left, it deletes the sign and returns false, otherwise it returns the sign. A user who may only lock
-- exclusively may lack the right: readers are in the way then until the sign expires.
local function settle(key)
  local readers = key .. '~readers'
  local dropped = try('ZREMRANGEBYSCORE', readers, '-inf', string.format('%.0f', math.floor(time() / 1000)))
  local count = type(dropped) == 'number' and try('ZCARD', readers)
  if count ~= 0 then return sign end
  call('DEL', key, readers)
  return false
end

-- labelOf returns the head of the id of the holder of a key, which has its time, and behind it the label, if there is one:
-- of readers, those of the reader that lives longest.
local function labelOf(key, held)
  local id = held ~= sign and string.match(held, '^([^|]+)|%d+$') or held == sign and try('ZRANGE', key .. '~readers', '-1', '-1')[1]
  if not id then return end
  local unlabelled, label = string.match(id, '^([^;]*)(.*)$')
  return string.sub(unlabelled, 1, 9) .. label
end
