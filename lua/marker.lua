-- begin.lua, then guard.lua, then marker.lua: a script of its own, for what is asked of
-- a node rather than of a lock.
--
-- KEYS[1] marker
-- ARGV    as begin.lua has it, then: what to do (look, vouch or mark), the list of masters
--         the caller has, as a fingerprint, and for vouch what look has said of run and born
--
-- Reply {node time in us, ms left without a vote or -1 for a stale caller, largest TTL in
-- ms, the fingerprint that was known before, run, born}.
--
-- vouch  ends the quarantine: somebody answers for this node having forgotten nothing, if it
--        has not been restarted or emptied since that was decided
-- mark   begins it: somebody has evidence that it did
--
-- Source: ALGORITHM section 8, "Bootstrap", and section 9, "mark".
local marker = KEYS[1]
local now = time()
local left = guard(marker, now)
if not left then return {now, -1, 0, '', '', ''} end
if argv[7] == 'vouch' then
  local known = call('HMGET', marker, 'run', 'born')
  if known[1] == argv[9] and known[2] == argv[10] then call('HSET', marker, 'born', '0') end
elseif argv[7] == 'mark' then
  call('HSET', marker, 'born', string.format('%.0f', math.floor(now / 1000)))
end
if argv[7] ~= 'look' then left = guard(marker, now) end
if not left then -- the first has just written down who this node is
  return {now, -1, 0, '', '', ''}
end
local known = call('HMGET', marker, 'maxttl', 'masters', 'run', 'born')
if known[2] ~= argv[8] then call('HSET', marker, 'masters', argv[8]) end
return {now, left, tonumber(known[1]), known[2] or '', known[3], known[4]}
