-- acquire.lua: take the lock key for one attempt, and count its fencing tokens.
--
-- KEYS[1] lock key, KEYS[2] fencing counter
-- ARGV[1] attempt id          ARGV[2] TTL, ms
-- ARGV[3] not after, us of this node's clock; 0 = no limit
-- ARGV[4] counter TTL, ms     ARGV[5] tokens a grant reserves
-- ARGV[6] where a missing counter should start, us; 0 = no wish
--
-- Reply {code, counter, node time in us, extra}:
--   1 granted  counter given with this grant
--   2 mine     the attempt holds the key already; counter as given then
--   3 busy     extra: ms until the other's key expires, -1 = never
--   4 planted  the key is set, but this is no vote
--   5 late     the request arrived after ARGV[3]: nothing was done
--   7 badtype  extra: index in KEYS of what is no string, or no number
--
-- Source: ALGORITHM section 3. TIME is read once; numbers are turned into text
-- by %.0f alone, as the language's own conversion loses digits above 1e15.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local notAfter = tonumber(ARGV[3])
if notAfter > 0 and now > notAfter then return {5, 0, now, 0} end

local counter = redis.pcall('GET', KEYS[2])
if type(counter) == 'table' then return {7, 0, now, 2} end
if counter then
  counter = tonumber(counter)
  if not counter then return {7, 0, now, 2} end
  counter = counter + ARGV[5]
else
  counter = now
  local hint = tonumber(ARGV[6])
  if now <= hint and hint <= now + 1000000 then counter = hint end
end
local text = string.format('%.0f', counter)
local own = ARGV[1] .. '|'

-- The free lock is the common case: it is told by the SET itself.
if redis.call('SET', KEYS[1], own .. text, 'NX', 'PX', ARGV[2]) then
  redis.call('SET', KEYS[2], text, 'PX', ARGV[4])
  return {1, counter, now, 0}
end
local held = redis.pcall('GET', KEYS[1])
if type(held) ~= 'string' then return {7, 0, now, 1} end
if string.sub(held, 1, #own) ~= own then
  return {3, 0, now, redis.call('PTTL', KEYS[1])}
end
local given = tonumber(string.sub(held, #own + 1)) or 0
if given > 0 then return {2, given, now, 0} end
return {4, 0, now, 0}
