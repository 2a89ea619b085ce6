-- common.lua, then begin.lua, guard.lua, readers.lua, queue.lua, acquire.lua, raise.lua, extend.lua,
-- release.lua, shared.lua, permits.lua and run.lua: one script, which carries out what a client has queued for this node, in order.
-- begin.lua says what it is sent and what it replies.
--
-- This file does the common case without the functions of the other files, because to make them
-- costs as much as the commands do, at each call of a script: the acquire of a free key and the
-- extend of a key that is ours, on a node that has a vote, and the release of a key that is ours.
-- At the queue node no process waits. It does the same as acquire.lua, extend.lua and release.lua.
-- It does not touch a request that is not common; from that request on, run.lua goes on with the
-- other files.
--
-- Source: ALGORITHM sections 3 to 6 and 8.
local argv, reply, at, n, i, clock = ARGV, {0, 0}, 4, 2, 2, nil
local number, last, who, guarded, ttl, notAfter -- of the group

-- nextGroup reads what the requests of a group have in common.
local function nextGroup()
  number, last, who = argv[at], i + argv[at + 1] - 1, argv[at + 2]
  at = at + 3
  guarded = number == '1' or number == '3' or number == '6' or number == '8' or number == '11'
  if guarded then
    ttl, notAfter = argv[at], tonumber(argv[at + 1])
    at = at + 2
  end
end

local function common()
  local try, run, oldest = redis.pcall, argv[1], 0 -- a counter that is older than oldest counts as missing, us
  local vote, counterTTL, skew, maxTTL, stretch
  local function life(counter) -- of a counter, ms
    local early = counter - clock
    return early > 0 and string.format('%d', counterTTL + math.ceil(early / 1000)) or counterTTL
  end
  while i <= #KEYS do
    nextGroup()
    if number == '1' or number == '3' then
      if vote == nil then
        local t = redis.call('TIME')
        clock = t[1] * 1000000 + t[2]
        counterTTL, skew, maxTTL, stretch = string.match(argv[3], '^(%d+) (%d+) (%d+) (%S+)')
        vote = run == ''
        if not vote then
          local known = try('HMGET', KEYS[1], 'run', 'born', 'maxttl', 'since')
          local born, longest = tonumber(known[2]), tonumber(known[3])
          oldest = 1000 * (tonumber(known[4]) or 0)
          vote = known[1] == run and born and longest and longest >= tonumber(maxTTL)
            and born + math.ceil(longest * stretch) + 100 <= math.floor(clock / 1000)
        end
        reply[1] = clock
      end
      if not vote or notAfter > 0 and clock > notAfter then return end
    elseif number ~= '4' then
      return
    end
    while i <= last do
      local key, code, counter = KEYS[i], 30, 0
      if who ~= '' and try('EXISTS', key .. '~queue', key .. '~turn') ~= 0 then return end
      if number ~= '1' then
        local target = argv[at + 1]
        if target ~= '=' and target ~= '0' then return end
        if try('GETRANGE', key, '0', '255') ~= argv[at] then return end
        if number == '4' then
          if try('DEL', key) ~= 1 then return end
        else
          local counterKey, given = key .. '~fence', string.match(argv[at], '|(%d+)$')
          if try('GETRANGE', counterKey, '0', '255') ~= given then return end
          if given - clock > skew + 1000000 then return end
          local rest = try('PTTL', key)
          if type(rest) ~= 'number' or rest >= tonumber(ttl) or try('PEXPIRE', key, ttl) ~= 1 then return end
          try('PEXPIRE', counterKey, life(given))
          code = 20
        end
      else
        local counterKey = key .. '~fence'
        local known = try('GETRANGE', counterKey, '0', '255')
        if known == '' then
          local median, wish = tonumber(argv[2]), tonumber(argv[at + 1])
          if math.abs(clock - median) > tonumber(skew) or try('EXISTS', counterKey) ~= 0 then return end
          counter = median <= wish and wish <= median + 1000000 and wish or median
        else
          counter = tonumber(known)
          if not counter or counter % 1 ~= 0 or counter < oldest then return end
          counter = counter + 64
        end
        if counter > clock + skew + 1000000 then return end
        local text = string.format('%.0f', counter)
        local set = try('SET', key, argv[at] .. '|' .. text, 'NX', 'PX', ttl)
        if not set or set.err then return end
        code = try('SET', counterKey, text, 'PX', life(counter)).err or 1
        if code ~= 1 then counter = 0 end
      end
      reply[n + 1], reply[n + 2], reply[n + 3] = code, counter, 0
      at, n, i = at + 2, n + 3, i + 1
    end
  end
  return reply
end
if common() then return reply end
