-- guard: what this node knows of itself, and of what all clients must agree on. The scripts about the node include it.
--
-- The marker is a hash with these fields:
--   protocol version of the protocol (wire.Protocol), and ms of this node's clock until when its clients count
--   run      the server that the marker was written for: run id, a colon, and, if it was ever promoted, the replication
--            id, which is new with each promotion; the first 16 digits of each
--   was      the run ids of the servers before it, the last one first, with a comma behind each, if their restarts lost nothing
--   made     when it was written for that server, or last marked, ms of this node's clock
--   born     since when the node is known to remember everything, ms of this node's clock
--   proof     proves to a caller that nothing has changed since it joined: marker.lua
--   lists, servers, ttls  what clients have said of themselves: marker.lua
--   maxttl   the largest TTL in ttls, ms, for clients in other languages: no script here reads it
-- A marker that is missing, or another server's, means that keys may have been lost. The node
-- gives no vote for as long as one of them could have lived. The marker is kept on the node and
-- not in a client, because this has to hold for every client.
--
-- The quarantine is counted by this node's clock, so it only runs while the clock is right: a
-- clock that is put forward would end it too early. born is '?' until a caller confirms this clock
-- by those of the other nodes, and again when a caller contradicts it. While born is '?', the
-- quarantine has not begun.
--
-- Source: ALGORITHM section 8.
local run = argv[1]
local protocol = '1'

-- count reads a number of the marker. Any other text counts as missing.
local function count(digits)
  local n = tonumber(digits)
  return n and n >= 0 and n < 2 ^ 52 and n % 1 == 0 and n
end

local function text(number) return string.format('%.0f', number) end

-- longestOfAll is more than any quarantine, ms: no TTL is longer than a day. What is longer, or counts for longer than
-- that lets it count, was written by the wrong clock or by another program.
local longestOfAll = 2 * 86400000

-- isSame reports whether a server that was known by its identity still is the same master. The replication id goes
-- when nothing is left of the replicas, and comes with a promotion.
local function isSame(known, present)
  return known == present or string.match(known, '^[^:]*:') == present
end

-- claims reads a field that has a claim a line: when it was last made, what it says, and behind a tab the label of the
-- client that made it, if it has one.
local putBack = false -- the clock was, after a claim was made
local function claims(lines, moment)
  local list = {}
  for at, value, label in string.gmatch(lines or '', '(%d+) ([^\t\n]+)([^\n]*)') do
    at = count(at)
    putBack = putBack or at and at > moment
    if at then list[#list + 1] = {at = math.min(at, moment), value = value, label = label} end
  end
  return list
end

-- longest returns the claim with the longest quarantine that is in use, its length and the TTL that it is for.
local function longest(ttls, moment)
  local most, length, ttl = nil, 0, 0
  for _, claim in ipairs(ttls) do
    local itsLength, itsTTL = string.match(claim.value, '^(%d+) (%d+)$')
    itsLength = count(itsLength)
    if itsLength and itsLength > length and itsLength < longestOfAll and moment - claim.at < 2 * itsLength then
      most, length, ttl = claim, itsLength, count(itsTTL) or 0
    end
  end
  return most, length, ttl
end

-- guard returns for how long this node has no vote yet, in ms; 0 if it has a vote. It returns
-- false if the caller goes by the run id of a server that is not this one any more, or if clients with another version
-- of the protocol are in use: then other is that version. Nothing was done then.
local function guard(marker, now)
  local moment = math.floor(now / 1000)
  local known = call('HMGET', marker, 'run', 'born', 'ttls', 'protocol', 'was')
  local version, till = string.match(known[4] or '', '^(%S+) (%d+)$')
  if version and version ~= protocol then
    till = count(till) or 0
    if moment < till and till < moment + 4 * longestOfAll then return false, version end
    call('DEL', marker) -- none of its clients is left, and what it says is not known here
    known = {}
  end
  local born, pending = count(known[2]), known[2] == '?'
  local is = pending and '?' or born
  if not is or not known[1] or not isSame(known[1], run) and run ~= '?' then
    local own = run
    local function told(section, name) -- of INFO, which as a whole can have megabytes
      local info = try('INFO', section)
      return type(info) == 'string' and string.match(info, '\n' .. name .. ':([^\r\n]+)')
    end
    local id = told('server', 'run_id')
    if id then
      own = string.sub(id, 1, 16) .. ':'
      if told('replication', 'second_repl_offset') ~= '-1' then own = own .. string.sub(told('replication', 'master_replid') or '', 1, 16) end
    end
    if is and known[1] and isSame(known[1], own) then return false end
    local was = ''
    if trust == '1' and is and known[1] then
      was = string.sub(string.match(known[1], '^[^:]*') .. ',' .. (known[5] or ''), 1, 68) -- four
    else
      born, is = nil, '?'
    end
    call('HSET', marker, 'run', own, 'was', was, 'made', text(moment), 'born', is == '?' and is or text(is), 'proof', '')
  end
  local _, length = longest(claims(known[3], moment), moment)
  length = math.max(length, quarantine)
  local left = born and born + length - moment or length
  if left <= 0 then return 0 end
  local was = is
  if near(now) then
    if not born or left > length then is = moment end -- from now on; the clock was put back
  elseif born and (median > 0 or left > length) then
    is = '?'
  end
  if is ~= was then
    call('HSET', marker, 'born', is == '?' and is or text(is), 'proof', '')
    left = length
  end
  return left
end
