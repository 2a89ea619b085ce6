-- begin.lua, then guard.lua, then marker.lua: a script of its own, for questions about the node
-- and not about a lock.
--
-- KEYS[1] marker
-- ARGV    as begin.lua has it, then: what to do (look, join, vouch or mark), the caller's
--         list of masters: their addresses, sorted, with a space between two, and for vouch
--         what look has said of run and made
--
-- Reply {node time in us, ms left without a vote or -1 for a stale caller, largest TTL in
-- ms, run, made, the other lists in use, one a line, and the one of them that the caller's
-- list conflicts with, or ''}.
--
-- join   says that the caller's list is in use. A list that conflicts with another one is not
--        taken, with two exceptions: it is in use here already, or the node is in quarantine.
--        After a node was emptied, the first client to join need not be one whose list the node
--        knew before
-- vouch  ends the quarantine: an operator guarantees that this node has forgotten nothing. It
--        does nothing if the node has been restarted or emptied since the operator looked
-- mark   begins a quarantine: the caller has evidence that the node has forgotten something
--
-- The marker's field lists has a line for each list of masters in use: when a client joined
-- with it last, in ms of this node's clock, and the list. A list is in use for two quarantines
-- after that: clients that want votes join every half quarantine, and no key lives longer than
-- one quarantine.
--
-- Source: ALGORITHM section 8, "Bootstrap" and "Membership", and section 9, "mark".
local marker, now = KEYS[1], time()
local what, list, seenRun, seenMade = argv[4], argv[5], argv[6], argv[7]

-- conflict reports whether a quorum of one list and a quorum of the other can have no member in
-- common. Two lists that share no address are not in conflict: they may be two sets of names for
-- the same nodes.
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

local left = guard(marker, now)
if left and (what == 'vouch' or what == 'mark') then
  if what == 'mark' then
    call('HSET', marker, 'made', string.format('%.0f', math.floor(now / 1000)), 'born', '?')
  else
    local known = call('HMGET', marker, 'run', 'made')
    if known[1] == seenRun and known[2] == seenMade then call('HSET', marker, 'born', '0') end
  end
  left = guard(marker, now) -- false if the first has just written down who this node is
end
if not left then return {now, -1, 0, '', '', '', ''} end

local known = call('HMGET', marker, 'maxttl', 'run', 'made', 'lists')
local moment = math.floor(now / 1000)
local inUse = 2 * (math.ceil(known[1] * stretch) + 100)
local kept, others, against, was, joined = {}, {}, '', false, false
for at, other in string.gmatch(known[4] or '', '(%d+) ([^\n]+)') do
  at = math.min(at, moment) -- the clock was put back
  if other == list then
    was, joined = true, moment - at < inUse
  elseif moment - at < inUse then
    kept[#kept + 1] = string.format('%.0f %s', at, other)
    others[#others + 1] = other
    if conflict(list, other) then against = other end
  end
end
if what == 'join' and (against == '' or joined or left > 0) then
  kept[#kept + 1] = string.format('%.0f %s', moment, list)
  local refused = try('HSET', marker, 'lists', table.concat(kept, '\n'))
  -- A node out of memory lets leases be extended, of clients that have joined, and grants none.
  if type(refused) == 'table' and not was then return refused end
end
return {now, left, tonumber(known[1]), known[2], known[3] or '', table.concat(others, '\n'), against}
