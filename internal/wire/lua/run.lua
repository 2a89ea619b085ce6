-- run.lua: the loop over the requests; see begin.lua.
local reply, guarded, unguarded, at, n = {0, 0}, false, nil, 9, 2
for i = 2, #KEYS, 2 do
  local number = argv[at]
  -- The function, how much of ARGV it takes, whether it needs the guard, and whether this
  -- node is the queue node.
  local f, length, guards, atQueueNode = release, 4, false, false
  if number == '1' then
    f, length, guards = acquire, 5, true
  elseif number == '2' then
    f = raise
  elseif number == '3' then
    f, length, guards = extend, 6, true
  elseif number == '5' then
    f, length, guards, atQueueNode = acquire, 6, true, true
  elseif number == '6' then
    length, atQueueNode = 5, true
  elseif number == '7' then
    f = rest
  end
  if guards and not guarded then -- the others have no use for the time
    guarded = true
    reply[1] = time()
    if run ~= '' then
      local ok, ms = pcall(guard, KEYS[1], time())
      if ok then left = ms else unguarded = ms end
      reply[2] = ok and ms or 0
    end
  end
  local ok, code, counter, extra
  if unguarded and guards then -- no vote without the marker
    ok, code = false, unguarded
  else
    ok, code, counter, extra = pcall(f, KEYS[i], KEYS[i + 1], at, atQueueNode)
  end
  if not ok then
    code = type(code) == 'table' and code.err or tostring(code)
    counter, extra = 0, 0
  end
  reply[n + 1], reply[n + 2], reply[n + 3] = code, counter, extra
  at, n = at + length, n + 3
end
return reply
