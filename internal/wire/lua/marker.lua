-- begin.lua, then guard.lua, then marker.lua: a script of its own, for questions about the node
-- and not about a lock.
--
-- KEYS[1] marker
-- ARGV    as begin.lua has it, then:
--         what to do: look, join, vouch or mark
--         the caller's list of masters: their addresses, sorted, with a space between two, and behind a tab the label
--         of the caller, if it has one
--         which servers the caller sees, one a line: the address, the run id, how many ms ago it was heard, and the run
--         id of the server before it, if that lost nothing
--         the largest TTLs that the caller knows of, one a line: the length of a quarantine for it, the TTL, how long ago a
--         lease with it was asked for, all in ms; and whether that was the caller's own, or is heard
--         for vouch what look has said of run and made
--
-- Reply {node time in us, ms left without a vote or -1 for a stale caller, the longest quarantine in use, its TTL and
-- age, run, was, made, the other lists in use, one a line, the one of them that the caller's list conflicts
-- with, or '', the servers that are in use where the caller sees another one, one a line: the address, the run id, and
-- for how many ms that still counts; the proof or ''}. Behind each list and server is a tab and the label of the client that told it last, if that has one.
-- The error PROTOCOL says which version the clients of this node have, if it is another one.
--
-- join   says what the caller stands for. A list that conflicts with another one is not
--        taken, with two exceptions: it is in use here already, or the node is in quarantine.
--        After a node was emptied, the first client to join need not be one whose list the node
--        knew before. A server is not taken for an address under which another server is in use, unless it is
--        the successor of that server.
-- vouch  ends the quarantine: an operator guarantees that this node has forgotten nothing, and that the servers
--        before the present ones have ended. It does nothing if the node has been restarted or emptied since the operator looked
-- mark   begins a quarantine: the caller has evidence that the node has forgotten something
--
-- Clients that want votes join when half the quarantine for their TTL is over, or earlier: as soon as a server would not
-- be in use for the whole TTL (node.joinEvery). No key lives longer than one quarantine. A list and a TTL are
-- in use for two quarantines after a client has joined with it or asked for it, and a server for one after a client has heard it: a server
-- that takes its place honestly has no vote for as long.
--
-- The proof is there while the node has a vote, and is new whenever something has changed that another client must hear
-- of. A call that has the proof is as good as a join. It is the beginning of the run id, a number that rises,
-- and the time, us/1000, below which a fencing counter may be from before the node lost something, and counts as missing.
--
-- Source: ALGORITHM section 8, "Bootstrap", "Agreement" and "Membership", and section 9, "mark".
local marker, now = KEYS[1], time()
local what, servers, ttls, seenRun, seenMade = argv[4], argv[6], argv[7], argv[8], argv[9]
local list = string.match(argv[5], '[^\t]*')
local label = string.sub(argv[5], #list + 1)

-- conflict reports whether a quorum of one list and a quorum of the other can have no member in
-- common. Two lists that share no address may be two sets of names for the same nodes.
local function conflict(a, b)
  local members, all, shared, ofA, ofB = {}, 0, 0, 0, 0
  for m in string.gmatch(a, '%S+') do
    members[m], ofA, all = true, ofA + 1, all + 1
  end
  for m in string.gmatch(b, '%S+') do
    ofB = ofB + 1
    if members[m] then shared = shared + 1 else all = all + 1 end
  end
  return shared > 0 and math.floor(ofA / 2) + 1 + math.floor(ofB / 2) + 1 <= all
end

-- textOf returns claims as a field of the marker has them.
local function textOf(list)
  local lines = {}
  for i, claim in ipairs(list) do lines[i] = string.format('%.0f %s%s', claim.at, claim.value, claim.label) end
  return table.concat(lines, '\n')
end

local left, other = guard(marker, now)
if left and (what == 'vouch' or what == 'mark') then
  if what == 'mark' then
    call('HSET', marker, 'made', text(math.floor(now / 1000)), 'born', '?', 'proof', '')
  else
    local known = call('HMGET', marker, 'run', 'made')
    if known[1] == seenRun and known[2] == seenMade then call('HSET', marker, 'born', '0', 'servers', '') end
  end
  left, other = guard(marker, now) -- false if the first has just written down who this node is
end
if other then return {err = 'PROTOCOL ' .. other} end
if not left then return {now, -1, '', '', '', '', '', '', '', ''} end

local known = call('HMGET', marker, 'run', 'was', 'made', 'born', 'proof', 'lists', 'servers', 'ttls')
local moment = math.floor(now / 1000)

-- The TTLs: those that are in use, with the caller's own.
local terms = {}
for _, claim in ipairs(claims(known[8], moment)) do
  local length = count(string.match(claim.value, '^%d+'))
  if length and moment - claim.at < 2 * length then terms[#terms + 1] = claim end
end
local _, before = longest(terms, moment)
for value, age, source in string.gmatch(ttls, '(%d+ %d+) (%d+) (%l+)') do
  local mine, place = {at = moment - age, value = value, label = ''}, #terms + 1
  for i, claim in ipairs(terms) do
    if claim.value == value then place = i end
  end
  local known = terms[place]
  -- What a caller has only heard makes nothing younger that is known here: clients would keep it in use for each other.
  if not known or source == 'own' and known.at < mine.at then terms[place] = mine end
end
for i = #terms, 1, -1 do -- one that a longer and younger one outlasts says nothing
  for j, other in ipairs(terms) do
    local mine, its = count(string.match(terms[i].value, '^%d+')), count(string.match(other.value, '^%d+'))
    if i ~= j and its >= mine and other.at >= terms[i].at then
      table.remove(terms, i)
      break
    end
  end
end
local most, length, ttl = longest(terms, moment)
local born = count(known[4])
local votes = born and born + length <= moment -- for clients that know of no larger TTL than the node
local fresh = length > before -- another client must hear of this
length = math.max(length, quarantine)

-- The lists.
local kept, others, against, was, joined = {}, {}, '', false, false
local lists = claims(known[6], moment)
if putBack then try('HSET', marker, 'lists', textOf(lists)) end -- they age from now on, also where every client is refused
for _, claim in ipairs(lists) do
  if claim.value == list then
    was, joined = true, moment - claim.at < 2 * length
  elseif moment - claim.at < 2 * length then
    others[#others + 1] = claim.value .. claim.label
    kept[#kept + 1] = claim
    if conflict(list, claim.value) then against = claim.value .. claim.label end
  end
end
local taken = against == '' or joined or left > 0
kept[#kept + 1] = {at = moment, value = list, label = label}
fresh = fresh or not joined

-- The servers: which of the caller's are others than those in use.
local seen, contested = {}, {}
for _, claim in ipairs(claims(known[7], moment)) do
  if moment - claim.at < 2 * length then seen[#seen + 1] = claim end
end
for address, id, age, former in string.gmatch(servers, '(%S+) (%S+) (%d+) (%S+)') do
  local mine, place = {at = moment - age, value = address .. ' ' .. id, label = label}, #seen + 1
  for i, claim in ipairs(seen) do
    if string.match(claim.value, '^%S+') == address then place = i end
  end
  local claim = seen[place]
  local its = claim and string.match(claim.value, '%S*$')
  if not claim or its == id or string.find(former, its, 1, true) or moment - claim.at >= length then
    if tonumber(age) < length then
      if its == id then mine.at = math.max(mine.at, claim.at) else fresh = true end
      seen[place] = mine
    end
  else
    contested[#contested + 1] = claim.value .. string.format(' %.0f', claim.at + length - moment) .. claim.label
  end
end

local present = string.match(known[5] or '', '^%w*:%d+:%d+$') or ''
local proof = present
if what == 'join' and taken then
  local fields = {
    'lists', textOf(kept), 'servers', textOf(seen), 'ttls', textOf(terms), 'maxttl', text(ttl),
    'protocol', protocol .. ' ' .. text(moment + 2 * length), 'proof', votes and proof or '',
  }
  if votes and (fresh or proof == '') then
    local oldest = born > 0 and born + math.ceil(length / 2) + 1000 or 0
    local number = math.max(now, (count(string.match(present, ':(%d+):')) or 0) + 1)
    proof = string.format('%s:%.0f:%.0f', string.match(known[1], '^%w?%w?%w?%w?%w?%w?%w?%w?'), number, oldest)
    fields[#fields] = proof
  end
  local refused = try('HSET', marker, unpack(fields))
  -- A node out of memory lets leases be extended, of clients that have joined, and grants none.
  if type(refused) == 'table' then
    if not was then return refused end
    proof = present
  end
end
if left > 0 or not taken or against ~= '' then proof = '' end
local told = most and string.format('%s %.0f', most.value, moment - most.at) or ''
return {
  now, left, told, known[1], known[2] or '', known[3] or '', table.concat(others, '\n'), against, table.concat(contested, '\n'), proof,
}
