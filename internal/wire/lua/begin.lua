-- begin: what a script is sent, and what several scripts need.
--
-- Before all    KEYS[1] marker
--               ARGV[1] the proof that this node gave the caller (marker.lua); ? = the caller joins in front of
--                       this call, empty = the guard is off, or no request needs it. For the scripts that include
--                       guard.lua: the server that the caller thinks this is; ? = unknown, empty = the guard is off
--               ARGV[2] what the masters' clocks show in the middle, by the caller's
--                       estimate, us; 0 = the caller does not know
--               ARGV[3] four settings of the caller, with a space between two: counter TTL, ms;
--                       how far this node's clock may be from ARGV[2], us; length of a quarantine, ms; 1 = a restart
--                       loses nothing here
-- Per group     the requests come in groups of one kind
--               ARGV: number of the function (1 acquire, 2 raise, 3 extend, 4 release, 5 rest; 5 more
--                       for a reader; 11 adopt), number of requests, at the queue node the process that asks, else empty
--                       (of adopt, at each node the value that the key has so far);
--                       for acquire, extend and adopt also: TTL, ms, and the latest time of execution, us
--                       of this node's clock, 0 = no limit
-- Per request   KEYS: lock key    ARGV: two arguments; the functions say which
--
-- Reply {node time in us or 0 if nothing needed it, then for each request: code, counter, extra}. The codes are
-- explained with the functions. If a command failed (out of memory, for example), an error text is in place of
-- the code. That affects no other request. If the proof is not the present one, the reply is the error UNPROVED, and
-- nothing was carried out: the caller joins, and sends the call again.
--
-- There is one script (common.lua) for a batch and not one for each request. Calling a script
-- costs as much as what an acquire does in it. And the node's time has to be read once: two
-- readings could contradict each other.
--
-- Numbers are turned into text by a format alone: the language's own conversion loses
-- digits above 1e15. The arguments of commands are texts: to convert a number costs more than a
-- command does otherwise.
local call, try, argv = redis.call, redis.pcall, ARGV
local median = tonumber(argv[2])
local counterTTL, skew, quarantine, trust = string.match(argv[3], '^(%d+) (%d+) (%d+) (%d)$')
skew, quarantine = tonumber(skew), tonumber(quarantine)

-- block is the number of fencing tokens that a grant reserves.
local block = 64

-- whole is the format of a counter: %d is faster, and exact but for servers of 32 bits.
local whole = string.format('%d', 2 ^ 53) == '9007199254740992' and '%d' or '%.0f'

-- ahead is how far a fencing counter may be ahead of this node's clock, us. A larger counter
-- is an accident: it is neither granted from nor passed on.
local ahead = skew + 1000000


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
  local value = try('GETRANGE', key, '0', '255')
  if value == '' and call('PTTL', key) == -2 then return false end
  if type(value) == 'table' and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then error(value) end
  return value
end

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

-- queueOf returns the key that names the queue of a lock key: the lock key itself, or, without the number,
-- a lock key that ends in '~' and a number. Several such keys have one queue.
local lastKey, lastQueue
local function queueOf(key)
  if key ~= lastKey then lastKey, lastQueue = key, string.match(key, '^(.*~)%d+$') or key end
  return lastQueue
end

-- idOf returns the attempt id of a key's value.
local function idOf(value) return string.match(value, '^[^|]*') end

-- placeholder returns the value by which break.lua replaces an attempt's value.
local function placeholder(value) return '~broken:' .. idOf(value) .. '|0' end

-- owns reports whether what a key holds is of the same attempt as a value, or is the placeholder
-- in its place.
local function owns(held, value)
  local own = idOf(value) .. '|'
  return type(held) == 'string' and (string.sub(held, 1, #own) == own or held == placeholder(value))
end

-- lift raises the fencing counter of a grant to that of its lease, and has its life begin anew. A
-- counter that is missing is not made, and a counter that is too far ahead is left to expire. A node
-- that refuses the write, as it is out of memory, keeps or drops the lock all the same.
local function lift(counterKey, value, target)
  local given = string.match(value, '|(%d+)$')
  local counter = given ~= '0' and tonumber(get(counterKey) or nil)
  if not counter then return end
  counter = math.max(counter, tonumber(target) or tonumber(given))
  if counter <= time() + ahead then pcall(keep, counterKey, counter) end
end
