-- run.lua: the loop over the requests; see begin.lua.
local reply, now, unguarded, at, n = {0, 0}, nil, nil, 7, 2
for i = 2, #KEYS, 2 do
  local number = argv[at]
  local f, length = release, 4 -- and how much of ARGV the request takes
  if number == '1' then
    f, length = acquire, 5
  elseif number == '2' then
    f = raise
  elseif number == '3' then
    f, length = extend, 6
  end
  if not now and length > 4 then -- the others have no use for the time
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
    reply[1] = now
    if run ~= '' then
      local ok, ms = pcall(guard, KEYS[1], now)
      if ok then left = ms else unguarded = ms end
      reply[2] = ok and ms or 0
    end
  end
  local ok, code, counter, extra
  if unguarded and length > 4 then -- no vote without the marker
    ok, code = false, unguarded
  else
    ok, code, counter, extra = pcall(f, KEYS[i], KEYS[i + 1], at, now)
  end
  if not ok then
    code = type(code) == 'table' and code.err or tostring(code)
    counter, extra = 0, 0
  end
  reply[n + 1], reply[n + 2], reply[n + 3] = code, counter, extra
  at, n = at + length, n + 3
end
return reply
