-- begin.lua, then guard.lua, queue.lua, acquire.lua, raise.lua, extend.lua, release.lua, then run.lua:
-- one script, which carries out what a lane has queued for this node, in order.
--
-- Before all    KEYS[1] marker
--               ARGV[1] counter TTL, ms         ARGV[2] tokens a grant reserves
--               ARGV[3] the server that the caller thinks this is (guard.lua); ? = unknown,
--                       empty = the guard is off
--               ARGV[4] largest TTL, ms         ARGV[5] length of a quarantine in such TTLs
--               ARGV[6] 1 = a restart loses nothing here
--               ARGV[7] what the masters' clocks show in the middle, by the caller's
--                       estimate, us; 0 = the caller does not know
--               ARGV[8] how far this node's clock may be from that, us
-- Per request   KEYS: lock key, fencing counter
--               ARGV: number of its function, then its arguments: 1 acquire, 2 raise,
--                       3 extend, 4 release, 5 and 6 acquire and release at the queue node,
--                       7 rest, at the queue node
--
-- Reply {node time in us or 0 if nothing needed it, ms left without a vote, then for each
-- request: code, counter, extra}. The codes are explained with the functions. If a command
-- failed (out of memory, for example), an error text is in place of the code. That affects no
-- other request.
--
-- There is one script for a batch and not one for each request. Calling a script costs as much
-- as what an acquire does in it. And the node's time has to be read once: two readings could
-- contradict each other.
--
-- Numbers are turned into text by a format alone: the language's own conversion loses
-- digits above 1e15.
local call, try, argv = redis.call, redis.pcall, ARGV
local counterTTL, block = argv[1], argv[2]
local run, maxTTL, stretch, trust = argv[3], argv[4], argv[5], argv[6]
local median, skew = tonumber(argv[7]), tonumber(argv[8])

-- whole is the format of a counter: %d is faster, and exact but for servers of 32 bits.
local whole = string.format('%d', 2 ^ 53) == '9007199254740992' and '%d' or '%.0f'

-- ahead is how far a fencing counter may be ahead of this node's clock, us. A larger counter
-- is an accident: it is neither granted from nor passed on.
local ahead = skew + 1000000

local left = 0 -- ms without a vote; the time between two requests of a batch does not count

-- time is the node's time in us, read once.
local micros
local function time()
  if not micros then
    local t = call('TIME')
    micros = t[1] * 1000000 + t[2]
  end
  return micros
end

-- get returns a key's string, false if there is no key, or a table if the key holds something
-- else. Any other error ends the request. What another program has put there may be large, so
-- no more is read than a lock's value can have.
local function get(key)
  local value = try('GETRANGE', key, 0, 255)
  if type(value) == 'table' and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then error(value) end
  if value == '' and call('PTTL', key) == -2 then return false end
  return value
end

-- placeholder is what break.lua puts in the place of an attempt's key.
local function placeholder(id) return '~broken:' .. id .. '|0' end

-- near reports whether this node's clock agrees with those of the other nodes. It is false if
-- the caller does not know their clocks.
local function near(now)
  return median > 0 and math.abs(now - median) <= skew
end

-- keep sets a fencing counter. It outlives the moment at which the node's clock reaches it:
-- a counter that is missing starts anew from the clocks, which must have passed it by then.
local function keep(counterKey, counter)
  local life, early = counterTTL, counter - time()
  if early > 0 then life = string.format('%d', counterTTL + math.ceil(early / 1000)) end
  call('SET', counterKey, string.format(whole, counter), 'PX', life)
end

-- lift raises a fencing counter to a target, and has its life begin anew. A counter that is
-- missing is not made, and one that is too far ahead is left to expire. A node that refuses
-- the write, as it is out of memory, keeps or drops the lock all the same.
local function lift(counterKey, target)
  local counter = tonumber(get(counterKey) or nil)
  if not counter then return end
  counter = math.max(counter, tonumber(target))
  if counter <= time() + ahead then pcall(keep, counterKey, counter) end
end
