-- longestTTL returns the largest TTL of which a lease can be left. It is forgotten when the last lease of this TTL must
-- be over: 1.25 quarantines after used, an eighth for the requests that used does not show, and an eighth for steps of
-- the clock, which agrees with those of the other nodes within a sixteenth each time.
local function longestTTL(marker, now, moment, longest, used, recent)
  local length = quarantine(longest)
  local agrees = median > 0 and math.abs(now - median) <= length * 1000 / 16
  used, recent = tonumber(used), tonumber(recent) or 0
  local refused
  if asked == longest then
    if not agrees or not used or moment < used then
      call('HDEL', marker, 'used', 'recent')
    elseif moment - used > length / 8 then
      refused = try('HSET', marker, 'used', string.format('%.0f', moment))
    end
  elseif not used then
    if agrees then refused = try('HSET', marker, 'used', string.format('%.0f', moment), 'recent', string.format('%.0f', asked)) end
  elseif agrees and moment - used > 1.25 * length then
    longest = math.max(recent, asked)
    call('HSET', marker, 'maxttl', string.format('%.0f', longest))
    call('HDEL', marker, 'used', 'recent')
  elseif asked > recent then
    refused = try('HSET', marker, 'recent', string.format('%.0f', asked))
  end
  if type(refused) == 'table' then call('HDEL', marker, 'used', 'recent') end -- a node out of memory begins anew
  return longest
end

-- guard returns for how long this node has no vote yet, in ms; 0 if it has a vote. It returns
-- false if the caller goes by the run id of a server that is not this one any more. Nothing was
-- done then.
--
-- The marker is a hash with these fields:
--   run     the server that the marker was written for: run id, a colon, and the replication
--           id, which is new with each promotion to master; the first 16 digits of each
--   made    when it was written for that server, ms of this node's clock
--   born    since when the node is known to remember everything, ms of this node's clock
--   maxttl  the largest TTL that a client has asked for, ms; see longestTTL
--   used    ms of this node's clock: the last request for maxttl came at most an eighth of its quarantine later.
--           It is there only while clients come that expect no lease of this TTL
--   recent  the largest other TTL that a client has asked for since
--   lists   see marker.lua
-- A marker that is missing, or another server's, means that keys may have been lost. The node
-- gives no vote for as long as one of them could have lived. The marker is kept on the node and
-- not in a client, because this has to hold for every client.
--
-- The quarantine is counted by this node's clock, so it only runs while the clock is right: a
-- clock that is put forward would end it too early. born is '?' until a caller confirms this clock
-- by those of the other nodes, and again when a caller contradicts it. While born is '?', the
-- quarantine has not begun.
--
-- A counter that was on the node before born may be an old one, from a copy of the data: it counts as
-- missing. The field made does not show that: no caller has confirmed the clock that it was read from.
-- A node whose disk the client trusts, or for which an operator vouches (born is 0), has forgotten
-- nothing.
--
-- Source: ALGORITHM sections 4 and 8.
local function guard(marker, now)
  local known = call('HMGET', marker, 'run', 'born', 'maxttl', 'used', 'recent')
  local born, longest = known[2], tonumber(known[3])
  local moment = string.format('%.0f', math.floor(now / 1000))
  if not born or not longest or known[1] ~= run and run ~= '?' then
    local own = run
    local function told(section, name) -- of INFO, which as a whole can have megabytes
      local info = try('INFO', section)
      return type(info) == 'string' and string.match(info, '\n' .. name .. ':([^\r\n]+)')
    end
    local id = told('server', 'run_id')
    if id then own = string.sub(id, 1, 16) .. ':' .. string.sub(told('replication', 'master_replid') or '', 1, 16) end
    if known[1] == own and born and longest then return false end
    if trust == '0' or not born or not longest then born = '?' end
    longest = math.max(longest or 0, asked)
    call('HSET', marker, 'run', own, 'made', moment, 'born', born, 'maxttl', string.format('%.0f', longest))
    if known[4] then call('HDEL', marker, 'used', 'recent') end
  elseif longest < asked then
    longest = asked
    call('HSET', marker, 'maxttl', string.format('%.0f', longest))
    if known[4] then call('HDEL', marker, 'used', 'recent') end
  elseif asked > 0 and (known[4] or longest > maxTTL) then
    longest = longestTTL(marker, now, tonumber(moment), longest, known[4], known[5])
  end
  local length = quarantine(math.max(longest, maxTTL))
  local since = tonumber(born) -- none while it is pending
  oldest = trust == '0' and since and since > 0 and since + math.ceil(ahead / 1000) or 0
  local left = since and since + length - moment or length
  if left <= 0 then return 0 end
  local is = born
  if near(now) then
    if not since or left > length then is = moment end -- from now on; the clock was put back
  elseif since and (median > 0 or left > length) then
    is = '?'
  end
  if is ~= born then
    call('HSET', marker, 'born', is)
    left = length
  end
  return left
end
