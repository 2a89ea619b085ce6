-- run.lua: the requests that common.lua has left; see begin.lua.
micros = clock -- which common.lua may have read
local functions = {acquire, raise, extend, release, rest, [11] = adopt}
local number, who, guarded, ttl, notAfter -- of the group

-- readGroup reads what the requests of a group have in common, and returns the place of their own arguments.
local function readGroup(place)
  number, who = argv[place], argv[place + 2]
  guarded = number == '1' or number == '3' or number == '6' or number == '8' or number == '11'
  if not guarded then return place + 3 end
  ttl, notAfter = argv[place + 3], tonumber(argv[place + 4])
  return place + 5
end

readGroup(group)
while i <= #KEYS do
  if last < i then
    last = i + argv[at + 1] - 1
    at = readGroup(at)
  end
  local f = functions[tonumber(number)]
  if not f then
    functions[6], functions[7], functions[8], functions[9], functions[10] = shared()
    f = functions[tonumber(number)]
  end
  if guarded then reply[1] = time() end -- the others have no use for it
  local ok, code, counter, extra
  if unguarded and guarded then -- no vote without the marker
    ok, code = false, unguarded
  else
    ok, code, counter, extra = pcall(f, KEYS[i], argv[at], argv[at + 1], who ~= '' and who, ttl, notAfter)
  end
  if not ok then
    code = type(code) == 'table' and code.err or tostring(code)
    counter, extra = 0, 0
  end
  reply[n + 1], reply[n + 2], reply[n + 3] = code, counter, extra
  at, n, i = at + 2, n + 3, i + 1
end
return reply
