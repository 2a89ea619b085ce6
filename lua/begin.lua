-- begin.lua, then acquire.lua, raise.lua, extend.lua, release.lua, then run.lua: one
-- script, which carries out what a lane has queued for this node, in order.
--
-- Per request   KEYS: lock key, fencing counter
--               ARGV: number of its function, then its arguments
-- Before all    ARGV[1] counter TTL, ms     ARGV[2] tokens a grant reserves
--
-- Reply {node time in us or 0 if nothing needed it, then for each request: code, counter, extra}. The codes are
-- explained with the functions. In place of a code there is a text where a command
-- failed, as out of memory does; it touches no other request.
--
-- One script for a batch rather than one each: calling a script costs as much as what
-- an acquire does in it, and the node's time is read once (TIME must be: two readings
-- could contradict each other).
--
-- Numbers are turned into text by %.0f alone: the language's own conversion loses
-- digits above 1e15.
local call, try, argv = redis.call, redis.pcall, ARGV
local counterTTL, block = argv[1], argv[2]

-- get is a key's string, false if there is none, or a table if it holds something else.
-- Whatever else the node has against it ends the request.
local function get(key)
  local value = try('GET', key)
  if type(value) == 'table' and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then error(value) end
  return value
end
