-- queue: the order in which processes get a resource. One node keeps it, the queue node of the
-- resource. It never decides which process holds the lock: that takes a quorum.
--
-- queue~queue     sorted set: the processes that wait, by when they joined, us; of several keys, those that have
--                 a turn stand behind the others
-- queue~seen      hash: when each of them last said that it waits, ms; with a '~' behind if it polls; then,
--                 with a '!' before it, the number of the key whose turn it was given
-- lock key~turn   the process that has the turn: until this expires this node lets no other process in.
--                 '~readers' is the turn of all readers that no writer stands before in the queue.
--                 '-' is the mark: an end came while another attempt had the key. '=' is the note:
--                 a quorum of the nodes refused what this node had granted
--
-- The queue is that of the lock key, or of several keys that are waited for as one (queueOf in begin.lua):
-- the turn stays with the key, and a process has the turn of one key at a time.
--
-- A process goes by the channel on which it listens, or by '-' if it does not wait. If it waits as a
-- reader, '~readers' follows. If it waits for any of several keys, '~' and a number follow, as it may
-- wait for some at a time. It joins by its rest, and leaves by a release or when it is granted. What
-- the user may not do with these keys is left out: waiting is slower then.
--
-- Source: ALGORITHM sections 10 and 12.

local turnMillis, noteMillis = 250, 150
local seenMillis, polledMillis = 3000, 300 -- a process that was last seen longer ago is dead
local mostHeads, lastHead = 256, '255' -- that are looked at, or dropped, in one call
local readersTurn = '~readers'
local mostSeveral = 1000 -- keys of which a process wants any
local behind = 2 ^ 52 -- added to the time when a process joined, while it has the turn of one of several keys

-- isNone reports whether a key stands for none of several: it names their queue alone, and is never set.
local function isNone(key) return string.sub(key, -2) == '~0' end

-- crowded reports whether a process waits or has the turn, or one of the signs stands in its place.
local function crowded(key)
  local n = try('EXISTS', queueOf(key) .. '~queue', key .. '~turn')
  return type(n) == 'number' and n > 0
end

local function waiting(key)
  local n = try('ZCARD', queueOf(key) .. '~queue')
  return type(n) == 'number' and n or 0
end

-- place returns how many processes wait before who, or false if it does not wait.
local function place(key, who)
  local n = try('ZRANK', queueOf(key) .. '~queue', who)
  return type(n) == 'number' and n
end

-- isReader reports whether a process waits as a reader.
local function isReader(who) return string.sub(who, -8) == '~readers' end

-- names returns the first processes in the queue, in order.
local function names(key)
  local list = try('ZRANGE', queueOf(key) .. '~queue', '0', lastHead)
  return list.err and {} or list
end

-- channelOf returns the channel of a process that waits for any of several keys.
local function channelOf(who) return string.match(who, '^(.*)~%d+$') or who end

-- others counts the processes that wait, without who. For a reader it counts the writers alone: other readers
-- are not in its way. Of several keys it counts the callers of other processes.
local function others(key, who)
  local n = 0
  if queueOf(key) ~= key then
    local own = channelOf(who)
    for _, name in ipairs(names(key)) do
      if channelOf(name) ~= own then n = n + 1 end
    end
    return n
  end
  if isReader(who) then
    for _, name in ipairs(names(key)) do
      if not isReader(name) then n = n + 1 end
    end
    return n
  end
  n = waiting(key)
  if n > 0 and place(key, who) then n = n - 1 end
  return n
end

-- behindWriter reports whether a writer stands before a process in the queue.
local function behindWriter(key, who)
  for _, name in ipairs(names(key)) do
    if name == who then return false end
    if not isReader(name) then return true end
  end
  return false
end

-- has reports whether the turn is that of a process in the queue.
local function has(called, who) return called == who or called == readersTurn and isReader(who) end

-- turn returns the process that has the turn, and for how many ms. If no process has it, turn returns
-- false, and the mark, the note or nothing. A life that the library does not give, which only an
-- operator does, is cut.
local function turn(key)
  local name = key .. '~turn'
  local called = try('GETRANGE', name, 0, 255)
  if type(called) ~= 'string' or called == '' then return false end
  local left = try('PTTL', name)
  if type(left) ~= 'number' or left < 0 or left > turnMillis then
    try('PEXPIRE', name, turnMillis)
    left = turnMillis
  end
  if called == '-' or called == '=' then return false, called end
  return called, left
end

-- seenOf returns when a process was last seen, ms, whether it polls, and the number of the key whose turn
-- it was given, or ''.
local function seenOf(key, name)
  local seen = try('HGET', queueOf(key) .. '~seen', name)
  local last, sign, number = string.match(type(seen) == 'string' and seen or '', '^(%d+)(~?)!?(%d*)$')
  return tonumber(last), sign == '~', number or ''
end

-- turnOf returns the one of several keys whose turn a process has, or nil.
local function turnOf(key, name)
  local queue = queueOf(key)
  if queue == key then return end
  local _, _, number = seenOf(key, name)
  if number ~= '' and turn(queue .. number) == name then return queue .. number end
end

-- see notes that a process was seen, and keeps the number of the key whose turn it has.
local function see(key, who, polls, its)
  local sign = (polls and '~' or '') .. (its and '!' .. string.match(its, '%d+$') or '')
  try('HSET', queueOf(key) .. '~seen', who, string.format('%.0f', time() / 1000) .. sign)
end

-- join puts a process at the end of the queue, unless it is in it. Each waiting process says
-- about once a second that it waits. A queue in which no process can be alive is forgotten. join returns the
-- one of several keys whose turn the process has, or nil, and whether it was in the queue before.
local function join(key, who, polls)
  if who == '-' then return end
  local queue, its = queueOf(key), turnOf(key, who)
  local before = try('ZADD', queue .. '~queue', 'NX', string.format('%.0f', time()), who) == 0
  if queue ~= key and not its then
    local joined = tonumber(try('ZSCORE', queue .. '~queue', who))
    if joined and joined >= behind then try('ZADD', queue .. '~queue', string.format('%.0f', joined - behind), who) end
  end
  see(key, who, polls, its)
  try('PEXPIRE', queue .. '~queue', seenMillis)
  try('PEXPIRE', queue .. '~seen', seenMillis)
  return its, before
end

-- drop takes a process out of the queue, and reports whether the user may do that.
local function drop(key, who)
  try('HDEL', queueOf(key) .. '~seen', who)
  return type(try('ZREM', queueOf(key) .. '~queue', who)) == 'number'
end

local attend

-- leave has a process leave the queue, and ends a turn that no process has any more.
local function leave(key, who)
  local its = turnOf(key, who)
  drop(key, who)
  local called = try('GETRANGE', key .. '~turn', 0, 255)
  local over = called == who and who ~= '-'
  if called == readersTurn then
    local head = try('ZRANGE', key .. '~queue', '0', '0')[1]
    over = not head or not isReader(head)
  end
  if over then try('DEL', key .. '~turn') end
  if its and its ~= key then
    try('DEL', its .. '~turn')
    attend(its, get(its))
  end
end

-- lets reports whether what the key holds lets a process in: nothing lets in every process, the sign of
-- readers lets in a reader.
local function lets(held, who) return not held or held == sign and isReader(who) end

-- tell calls a process. It reports whether the process listens.
local function tell(who, key)
  local suffix = isReader(who) and '~readers' or string.match(who, '~%d+$') or ''
  local listeners = try('PUBLISH', string.sub(who, 1, -#suffix - 1), key .. suffix)
  return type(listeners) == 'number' and listeners > 0
end

-- alive reports whether a process that was last seen then, or never, lives.
local function alive(last, polls) return last and last > time() / 1000 - (polls and polledMillis or seenMillis) end

-- first returns the head of the queue, and whether it polls. It drops heads that are dead, or passes over them. If the
-- head has the turn of one of several keys, so have all behind it.
local function first(key)
  local queue, place = queueOf(key), '0'
  for _ = 1, mostHeads do
    local head = try('ZRANGE', queue .. '~queue', place, place)[1]
    if not head then return end
    local last, polls, number = seenOf(key, head)
    if queue ~= key and number ~= '' and turn(queue .. number) == head then return end
    if alive(last, polls) then return head, polls end
    if not drop(key, head) then place = string.format('%d', place + 1) end
  end
end

-- callAgain tells the processes that have the turn, as they may have met an attempt on other nodes.
local function callAgain(key, called)
  if called ~= readersTurn then return tell(called, key) end
  for _, name in ipairs(names(key)) do
    if not isReader(name) then return end
    tell(name, key)
  end
end

-- invite has a process come in its turn, and reports whether it can. The asker hears by the reply, any other
-- process by a message. A process that does not listen comes if it polls. One that does not come is dead at the
-- next look, because it was not seen since. One that cannot come is dropped.
local function invite(key, name, asker, polls)
  if queueOf(key) == key then
    try('HDEL', key .. '~seen', name)
  else
    try('HSET', queueOf(key) .. '~seen', name, (polls and '0~!' or '0!') .. string.match(key, '%d+$'))
    try('ZADD', queueOf(key) .. '~queue', 'XX', 'INCR', string.format('%.0f', behind), name)
  end
  if name == asker or tell(name, key) or polls then return true end
  drop(key, name)
end

-- inviteReaders invites the readers at the head of the queue, up to the first writer.
local function inviteReaders(key, asker)
  local any = false
  for _, name in ipairs(names(key)) do
    if not isReader(name) then break end
    local last, polls = seenOf(key, name)
    if alive(last, polls) then
      any = invite(key, name, asker, polls) or any
    else
      drop(key, name)
    end
  end
  return any
end

-- attend gives the turn to the head of the queue, and tells it, if the key lets that process in and no
-- process has the turn. Readers have it together. held has the present value of the key. attend returns the
-- process that has the turn now, and for how many ms. Each acquire, release and rest attends. While
-- the note stands, the key is held on other nodes, and no process gets the turn.
--
-- A process keeps its place until it is granted.
function attend(key, held, asker)
  local called, left = turn(key)
  if called then return called, left end
  if left == '=' then return end
  for _ = 1, mostHeads do
    local head, polls = first(key)
    if not head or not lets(held, head) then return end
    local comes
    if isReader(head) then
      head, comes = readersTurn, inviteReaders(key, asker)
    else
      comes = invite(key, head, asker, polls)
    end
    if comes then
      try('SET', key .. '~turn', head, 'PX', turnMillis)
      return head, turnMillis
    end
  end
end

-- attendAll attends to all of several keys, for the process that rests, and has the turn of its key, if any. It
-- returns the number of the key whose turn that process has then, or how long it lasts until the first of the keys or
-- turns ends, ms, below 0; 0 = not known. A turn of a key that is held, or is above those that the process wants, is given
-- back. full says that all keys were there before in this call of the script: the first fullOf of a queue, and fullEnds
-- when the first of them ends. Of many keys that is told only a process that was in the queue before: any other rests again.
local full, fullOf, fullEnds
local few, againMillis = 16, 60
local function attendAll(queue, several, who, polls, its, before)
  if its and (tonumber(string.match(its, '%d+$')) > several or get(its)) then
    try('DEL', its .. '~turn')
    join(queue .. '0', who, polls)
    its = nil
  end
  if its then return tonumber(string.match(its, '%d+$')) end
  local told, isFull = several <= few or before, full == queue and fullOf >= several
  if isFull and (fullEnds or not told) then return told and -fullEnds or -againMillis end
  local ends, keys = math.huge, {}
  for i = 1, several do keys[i] = queue .. string.format('%d', i) end
  if not isFull and try('EXISTS', unpack(keys)) == several then
    full, fullOf, fullEnds, isFull = queue, several, nil, true
  end
  for i = 1, isFull and 0 or several do
    if try('EXISTS', keys[i]) == 0 and type(get(keys[i] .. '~fence')) ~= 'table' then -- no process could be granted it
      if not first(keys[i]) then break end
      local called, left = attend(keys[i], false, who)
      if called == who then return i end
      if called then ends = math.min(ends, left) end
    end
  end
  if not told then return -againMillis end
  for i = 1, several do
    local life = try('PTTL', keys[i])
    if type(life) == 'number' and life >= 0 then ends = math.min(ends, life) end
  end
  ends = ends < math.huge and math.max(ends, 1) or 0
  if isFull then fullEnds = ends end
  return -ends
end
