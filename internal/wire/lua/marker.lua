-- begin.lua, then guard.lua, then marker.lua: a script of its own, for questions about the node
-- and not about a lock.
--
-- KEYS[1] marker
-- ARGV    as begin.lua has it, then: what to do (look, join, vouch or mark), the caller's
--         lists of masters: their addresses, sorted, with a space between two, and
--         behind a tab the label of the caller, if it has one; and for vouch what
--         look has said of run and made
--
-- Reply {node time in us, ms left without a vote or -1 for a stale caller, largest TTL in
-- ms, run, made, the other lists in use, one a line, and the one of them that the caller's list
-- conflicts with, or ''}. Behind each list is a tab and the label of the client that joined with it
-- last, if that has one.
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
-- with it last, in ms of this node's clock, the list, and the label of that client, by which nothing
-- is decided. A list is
-- in use for two quarantines after that: clients that want votes join every half quarantine, and no
-- key lives longer than one quarantine.
--
-- Source: ALGORITHM section 8, "Bootstrap", "Membership", and section 9, "mark".
local marker, now = KEYS[1], time()
local what, seenRun, seenMade = argv[4], argv[6], argv[7]
local list = string.match(argv[5], '[^\t]*')

-- apart reports whether a quorum of one list and a quorum of the other can have no member in
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

local left = guard(marker, now)
if left and (what == 'vouch' or what == 'mark') then
  if what == 'mark' then
    call('HSET', marker, 'made', string.format('%.0f', math.floor(now / 1000)), 'born', '?')
    if call('HMGET', marker, 'used')[1] then call('HDEL', marker, 'used', 'recent') end -- the clock may have been stepped
  else
    local known = call('HMGET', marker, 'run', 'made')
    if known[1] == seenRun and known[2] == seenMade then call('HSET', marker, 'born', '0') end
  end
  left = guard(marker, now) -- false if the first has just written down who this node is
end
if not left then return {now, -1, 0, '', '', '', ''} end

local known = call('HMGET', marker, 'maxttl', 'run', 'made', 'lists')
local moment = math.floor(now / 1000)
local inUse = 2 * quarantine(math.max(known[1], maxTTL))
local kept, others, against, was, joined = {}, {}, '', false, false
for at, other, label in string.gmatch(known[4] or '', '(%d+) ([^\t\n]+)([^\n]*)') do
  at = math.min(at, moment) -- the clock was put back
  if other == list then
    was, joined = true, moment - at < inUse
  elseif moment - at < inUse then
    others[#others + 1] = other .. label
    kept[#kept + 1] = string.format('%.0f %s%s', at, other, label)
    if conflict(list, other) then against = other .. label end
  end
end
if what == 'join' and (against == '' or joined or left > 0) then
  kept[#kept + 1] = string.format('%.0f %s', moment, argv[5])
  local refused = try('HSET', marker, 'lists', table.concat(kept, '\n'))
  -- A node out of memory lets leases be extended, of clients that have joined, and grants none.
  if type(refused) == 'table' and not was then return refused end
end
return {now, left, tonumber(known[1]), known[2], known[3] or '', table.concat(others, '\n'), against}
