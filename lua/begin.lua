-- begin.lua, then guard.lua, queue.lua, acquire.lua, raise.lua, extend.lua, release.lua, then run.lua:
-- one script, which carries out what a lane has queued for this node, in order.
--
-- Before all    KEYS[1] marker
--               ARGV[1] counter TTL, ms         ARGV[2] tokens a grant reserves
--               ARGV[3] the server that the caller thinks this is (guard.lua); ? = unknown,
--                       empty = the guard is off
--               ARGV[4] largest TTL, ms         ARGV[5] length of a quarantine in such TTLs
--               ARGV[6] 1 = a restart loses nothing here
-- Per request   KEYS: lock key, fencing counter
--               ARGV: number of its function, then its arguments: 1 acquire, 2 raise,
--                       3 extend, 4 release, 5 and 6 acquire and release at the gate
--
-- Reply {node time in us or 0 if nothing needed it, ms left without a vote, then for each
-- request: code, counter, extra}. The codes are explained with the functions. In place of
-- a code there is a text where a command failed, as out of memory does; it touches no
-- other request.
--
-- One script for a batch rather than one each: calling a script costs as much as what
-- an acquire does in it, and the node's time is read once (TIME must be: two readings
-- could contradict each other).
--
-- Numbers are turned into text by a format alone: the language's own conversion loses
-- digits above 1e15.
local call, try, argv = redis.call, redis.pcall, ARGV
local counterTTL, block = argv[1], argv[2]
local run, maxTTL, stretch, trust = argv[3], argv[4], argv[5], argv[6]

-- whole is the format of a counter: %d is faster, and exact but for servers of 32 bits.
local whole = string.format('%d', 2 ^ 53) == '9007199254740992' and '%d' or '%.0f'

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

-- get is a key's string, false if there is none, or a table if it holds something else.
-- Whatever else the node has against it ends the request.
local function get(key)
  local value = try('GET', key)
  if type(value) == 'table' and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then error(value) end
  return value
end
