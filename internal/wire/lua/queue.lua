-- queue: the order in which processes get a resource. One node keeps it, the queue node of the
-- resource. It never decides which process holds the lock: that takes a quorum.
--
-- lock key~queue  sorted set: the processes that wait, by when they joined, us
-- lock key~seen   hash: when each of them last said that it waits, ms
-- lock key~turn   the process that has been called; until this expires this node lets no other
--                 process in. '-' is the mark: a release came while another attempt had the key
--
-- A process goes by the channel on which it listens, or by '-' if it does not wait. It joins
-- by its rest and leaves by a release, when it is called, or when it is granted. What the user
-- may not do with these keys is left out: waiting is slower then.
--
-- Source: ALGORITHM section 10.

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

-- callNext calls the process at the head of the queue. A process that has not said for 3 s that
-- it waits, or does not listen any more, loses its place.
local function callNext(key)
  local queue, seen = key .. '~queue', key .. '~seen'
  local called, missed = turn(key)
  if called then -- it may have met the one before it on other nodes
    try('PUBLISH', called, key)
    return
  end
  if missed then try('DEL', key .. '~turn') end
  for _ = 1, 16 do
    local head = try('ZPOPMIN', queue)[1]
    if not head then return end
    local last = tonumber(try('HGET', seen, head) or 0)
    try('HDEL', seen, head)
    if last and last > time() / 1000 - 3000 then
      local listeners = try('PUBLISH', head, key)
      if type(listeners) == 'number' and listeners > 0 then
        try('SET', key .. '~turn', head, 'PX', turnMillis)
        return
      end
    end
  end
end

-- miss leaves the mark for the attempt that has the key: a release came meanwhile. The mark
-- lives as long as an attempt can.
local function miss(key)
  try('SET', key .. '~turn', '-', 'NX', 'PX', turnMillis)
end
