-- common.lua, then begin.lua, readers.lua, queue.lua, acquire.lua, adopt.lua, raise.lua, extend.lua,
-- release.lua, shared.lua and run.lua: one script, which carries out what a client has queued for this node, in order.
-- begin.lua says what it is sent and what it replies.
--
-- This file does the common case: the acquire of a free key and the extend of a key that is ours, on a
-- node that has a vote, and the release of a key that is ours. At the queue node no process waits. It does
-- the same as acquire.lua, extend.lua and release.lua. It does not touch a request that is not common;
-- from that request on, run.lua goes on with the other files.
--
-- There are no functions here, because to make one costs about as much as a command, at each call of the
-- script.
--
-- Source: ALGORITHM sections 3 to 6 and 8.
local argv, try = ARGV, redis.pcall
local reply, at, n, i = {0, 0, 0, 0}, 4, 1, 2 -- the reply to one request fits
local group, last = 4, 0 -- the present group: its place in argv, its last key
local clock -- the node's time, if it was read
local vote, unguarded = true, nil -- the node has a vote; why its marker cannot be read
local isCommon, oldest, counterTTL, skew = true, 0, nil, nil -- a counter that is older than oldest counts as missing, us
if argv[1] ~= '' then -- some request depends on the node's vote
  local known = try('HMGET', KEYS[1], 'proof')
  local proof = known[1]
  if known.err then unguarded = known
  elseif argv[1] ~= '?' and argv[1] ~= proof then return {err = 'UNPROVED by a join'} end
  if proof and proof ~= '' then
    oldest = 1000 * (string.match(proof, ':(%d+)$') or 0)
  else
    vote = false
  end
end
while isCommon and i <= #KEYS do
  group, last = at, i + argv[at + 1] - 1
  local number, who, ttl, notAfter = argv[at], argv[at + 2], nil, nil
  at = at + 3
  if number == '1' or number == '3' then
    ttl, notAfter = argv[at], tonumber(argv[at + 1])
    at = at + 2
    if not clock then
      local t = redis.call('TIME')
      clock = t[1] * 1000000 + t[2]
      reply[1] = clock
      counterTTL, skew = string.match(argv[3], '^(%d+) (%d+)')
      skew = tonumber(skew)
    end
    isCommon = vote and (notAfter <= 0 or clock <= notAfter)
  elseif number ~= '4' then
    isCommon, at, last = false, group, i - 1 -- run.lua begins with the group
  end
  while isCommon and i <= last do
    local key, value, target = KEYS[i], argv[at], argv[at + 1]
    local counterKey, code, counter = key .. '~fence', nil, 0
    if who ~= '' and try('EXISTS', (string.match(key, '^(.*~)%d+$') or key) .. '~queue', key .. '~turn') ~= 0 then
      -- a process waits
    elseif number == '1' then
      local known = try('GETRANGE', counterKey, '0', '255')
      counter = tonumber(known)
      if counter then
        counter = counter % 1 == 0 and counter >= oldest and counter + 64
      elseif known == '' then
        local median, wish = tonumber(argv[2]), tonumber(target)
        counter = math.abs(clock - median) <= skew and try('EXISTS', counterKey) == 0
          and (median <= wish and wish <= median + 1000000 and wish or median)
      end
      if counter and counter <= clock + skew + 1000000 then
        local text = string.format('%.0f', counter)
        local set = try('SET', key, value .. '|' .. text, 'NX', 'PX', ttl)
        if set and not set.err then
          local life = counter > clock and string.format('%d', counterTTL + math.ceil((counter - clock) / 1000)) or counterTTL
          code = try('SET', counterKey, text, 'PX', life).err or 1
          if code ~= 1 then counter = 0 end
        end
      end
    elseif target ~= '=' and target ~= '0' then
      -- the counter has to be lifted
    elseif number == '3' and try('GETRANGE', key, '0', '255') == value then
      local given = string.match(value, '|(%d+)$')
      if try('GETRANGE', counterKey, '0', '255') == given and given - clock <= skew + 1000000 then
        local rest = try('PTTL', key)
        if type(rest) == 'number' and rest < tonumber(ttl) and try('PEXPIRE', key, ttl) == 1 then
          local early = given - clock
          try('PEXPIRE', counterKey, early > 0 and string.format('%d', counterTTL + math.ceil(early / 1000)) or counterTTL)
          code = 20
        end
      end
    elseif number == '4' and try('GETRANGE', key, '0', '255') == value then
      code = try('DEL', key) == 1 and 30
    end
    isCommon = code
    if isCommon then
      reply[n + 1], reply[n + 2], reply[n + 3] = code, counter, 0
      at, n, i = at + 2, n + 3, i + 1
    end
  end
end
if isCommon then return reply end
