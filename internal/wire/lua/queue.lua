-- queue: the order in which processes get a resource. One node keeps it, the queue node of the
-- resource. It never decides which process holds the lock: that takes a quorum.
--
-- lock key~queue  sorted set: the processes that wait, by when they joined, us
-- lock key~seen   hash: when each of them last said that it waits, ms
-- lock key~turn   the process that has been called; until this expires this node lets no other
--                 process in. '-' is the mark: a release came while another attempt had the key
--
-- A process goes by the channel on which it listens, or by '-' if it does not wait. If it waits as a
-- reader, '~readers' follows. It joins by its rest and leaves by a release, when it is called, or when it
-- is granted. What the user may not do with these keys is left out: waiting is slower then.
--
-- Source: ALGORITHM sections 10 and 12.

-- crowded reports whether a process waits or has been called.
local function crowded(key)
  local n = try('EXISTS', key .. '~queue', key .. '~turn')
  return type(n) == 'number' and n > 0
end

local function waiting(key)
  local n = try('ZCARD', key .. '~queue')
  return type(n) == 'number' and n or 0
end

-- others counts the processes that wait, without who.
local function others(key, who)
  local n = waiting(key)
  if n > 0 and type(try('HGET', key .. '~seen', who)) == 'string' then n = n - 1 end
  return n
end

-- turn returns the process that has been called, and for how many ms it has its turn. If no
-- process has been called, it returns false, and whether a release was missed. A turn without an
-- end, which only an operator leaves, gets one.
local turnMillis = 250
local function turn(key)
  local name = key .. '~turn'
  local called = try('GETRANGE', name, 0, 255)
  if type(called) ~= 'string' or called == '' or called == '-' then return false, called == '-' end
  local left = try('PTTL', name)
  if type(left) ~= 'number' or left < 0 then
    try('PEXPIRE', name, turnMillis)
    left = turnMillis
  end
  return called, left
end

-- join puts a process at the end of the queue, unless it is in it. Each waiting process says
-- about once a second that it waits. A queue that no process joins for 10 s is forgotten.
local function join(key, who)
  if who == '-' then return end
  local queue, seen = key .. '~queue', key .. '~seen'
  try('ZADD', queue, 'NX', string.format('%.0f', time()), who)
  try('HSET', seen, who, string.format('%.0f', time() / 1000))
  try('PEXPIRE', queue, 10000)
  try('PEXPIRE', seen, 10000)
end

-- leave takes a process out of the queue, and ends its turn.
local function leave(key, who)
  try('ZREM', key .. '~queue', who)
  try('HDEL', key .. '~seen', who)
  if who ~= '-' and try('GETRANGE', key .. '~turn', 0, 255) == who then try('DEL', key .. '~turn') end
end

-- isReader reports whether a process waits as a reader.
local function isReader(who) return string.sub(who, -8) == '~readers' end

-- tell calls a process. It reports whether the process listens.
local function tell(who, key)
  local suffix = isReader(who) and '~readers' or ''
  local listeners = try('PUBLISH', string.sub(who, 1, -#suffix - 1), key .. suffix)
  return type(listeners) == 'number' and listeners > 0
end

-- lives reports whether a process has said within 3 s that it waits.
local function lives(key, who)
  local last = tonumber(try('HGET', key .. '~seen', who) or 0)
  return last and last > time() / 1000 - 3000
end

-- first returns the head of the queue, without taking it out. It drops heads that do not live.
local function first(key)
  for _ = 1, 16 do
    local head = try('ZRANGE', key .. '~queue', '0', '0')[1]
    if not head or lives(key, head) then return head end
    try('ZREM', key .. '~queue', head)
    try('HDEL', key .. '~seen', head)
  end
end

-- behind reports whether a process waits before who.
local function behind(key, who)
  local head = first(key)
  return head and head ~= who
end

-- callNext calls the process at the head of the queue, if held, what the key holds now, lets that
-- process in: nothing lets in every process, the sign of readers lets in a reader. The head keeps its
-- place until then, and no process behind it is called. A process that does not live, or does not listen
-- any more, loses its place.
local function callNext(key, held)
  if held and held ~= sign then return end
  local called, missed = turn(key)
  if called then -- it may have met the one before it on other nodes
    if not held or isReader(called) then tell(called, key) end
    return
  end
  if missed and not held then try('DEL', key .. '~turn') end
  for _ = 1, 16 do
    local head, waits
    if held then
      head = first(key)
      waits = true
      if not head or not isReader(head) then return end
      try('ZREM', key .. '~queue', head)
    else
      head = try('ZPOPMIN', key .. '~queue')[1]
      if not head then return end
      waits = lives(key, head)
    end
    try('HDEL', key .. '~seen', head)
    if waits and tell(head, key) then
      try('SET', key .. '~turn', head, 'PX', turnMillis)
      return
    end
  end
end

-- miss leaves the mark for the attempt that has the key: a release came meanwhile. The mark
-- lives as long as an attempt can.
local function miss(key)
  try('SET', key .. '~turn', '-', 'NX', 'PX', turnMillis)
end
