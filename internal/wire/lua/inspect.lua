-- begin.lua, then guard.lua, readers.lua and inspect.lua: what this node has of a lock. The script
-- does not change the lock. It keeps up the marker as every other call does.
--
-- KEYS[1] marker  KEYS[2] lock key  KEYS[3] fencing counter
-- ARGV    as begin.lua has it
--
-- Reply {node time in us, ms left without a vote or -1 for a stale caller, value of the lock
-- key, ms until it expires or -1 for never, counter or '?' for what cannot be one, how many
-- processes wait}. If there is no key, the value is empty and the life -2. If the key holds something else than a string, the life is -3. Of a key
-- that readers have there follow how many they are, and of the first 64 to end the attempt id and the ms
-- left.
--
-- Source: ALGORITHM section 2.
local now, left, other = time(), 0, nil
if run ~= '' then left, other = guard(KEYS[1], now) end
if other then return {err = 'PROTOCOL ' .. other} end
if not left then return {now, -1, '', -2, '', 0} end
local held, counter = get(KEYS[2]), get(KEYS[3])
local number = type(counter) == 'string' and tonumber(counter)
if not counter then
  counter = ''
elseif not number or number % 1 ~= 0 or number < 0 then -- as in acquire.lua
  counter = '?'
elseif string.find(counter, '%D') then
  counter = string.format('%.0f', number)
end
local waiting = try('ZCARD', queueOf(KEYS[2]) .. '~queue')
if type(waiting) ~= 'number' then waiting = 0 end
if type(held) == 'table' then return {now, left, '', -3, counter, waiting} end
if not held then return {now, left, '', -2, counter, waiting} end
local reply = {now, left, held, call('PTTL', KEYS[2]), counter, waiting}
if held ~= sign then return reply end
local readers, ended, millis = KEYS[2] .. '~readers', 0, math.floor(now / 1000)
local list = try('ZRANGE', readers, '0', '63', 'WITHSCORES')
for i = 1, #list, 2 do
  local rest = list[i + 1] - millis
  if rest > 0 then
    reply[#reply + 1], reply[#reply + 2] = list[i], rest
  else
    ended = ended + 1
  end
end
local count = (list.err and call or try)('ZCARD', readers)
count = (type(count) == 'number' and count or #list / 2) - ended
if count == 0 then return {now, left, '', -2, counter, waiting} end
table.insert(reply, 7, count)
return reply
