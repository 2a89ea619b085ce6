-- probe: try the commands that locks need, before the first lock does. The server may lack a command,
-- or refuse the user.
--
-- KEYS[1] the marker, which each user may touch. ARGV[1] a key that never exists: on a key that is
-- missing each of these does nothing. HSET would set the key, so it writes to the marker what is there. Without a
-- marker it lacks its field, which the server says of a command that it knows, before it looks at the user's rights.
--
-- Reply: for each command in the order of commands.go, the error by which it was refused, or ''. That
-- the user may not touch this key says nothing: the pattern of its keys may be narrower.
local key, try = ARGV[1], redis.pcall
local marker = try('HMGET', KEYS[1], 'run')
local present = not marker.err and marker[1] and {KEYS[1], 'run', marker[1]} or {key}
local reply = {}
for i, command in ipairs({
  {'HMGET', key, 'run'}, {'HSET', unpack(present)}, {'GETRANGE', key, '0', '255'}, {'SET', key, '', 'XX'}, {'PTTL', key},
  {'PEXPIRE', key, '1'},
  {'DEL', key}, {'EXISTS', key}, {'ZADD', key, 'XX', '1', '-'}, {'ZREM', key, '-'}, {'ZCARD', key}, {'ZRANK', key, '-'},
  {'HGET', key, '-'}, {'HDEL', key, '-'}, {'ZSCORE', key, '-'}, {'ZREMRANGEBYSCORE', key, '0', '0'}, {'ZRANGE', key, '0', '0'},
}) do
  local said = try(unpack(command))
  local refused = type(said) == 'table' and said.err
  for _, harmless in ipairs({'a key', 'the keys', 'umber of arg'}) do
    if refused and string.find(refused, harmless, 1, true) then refused = nil end
  end
  reply[i] = refused or ''
end
return reply
