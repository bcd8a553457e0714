-- Finds the commands that Tollgate needs and that the user may not run, or that the server does not know.
--
-- Since version 7 the server can check that itself, and nothing is run. On an older one each command is tried on a
-- string, which most commands refuse for its type, and which is removed afterwards. A command that other clients would
-- notice is not tried.
--
-- KEYS[1] a key that nothing else uses
-- ARGV[1] the channel on which instances publish invalidations
-- ARGV[2] `cluster`, `sentinel` or empty: how the server was found
-- reply   for each of those commands: `refused` or `unknown`; its object: `keys`, `channel` or `server`; its name;
--         separated by spaces

local key, channel = KEYS[1], ARGV[1]
local commands = {
  { 'server', 'TIME' },
  { 'server', 'PING' },
  { 'server', 'SCAN', '0', 'COUNT', '1' },
  { 'server', 'SCRIPT', 'LOAD', '' },
  { 'server', 'MULTI' },
  { 'server', 'EXEC' },
  { 'keys', 'SET', key, '1', 'PX', '1000' },
  { 'keys', 'SETRANGE', key, '0', '1' },
  { 'keys', 'MGET', key },
  { 'keys', 'ZADD', key, '1', 'a' },
  { 'keys', 'ZCARD', key },
  { 'keys', 'ZCOUNT', key, '0', '0' },
  { 'keys', 'ZRANGE', key, '0', '0' },
  { 'keys', 'ZRANGEBYSCORE', key, '0', '1' },
  { 'keys', 'ZSCORE', key, 'a' },
  { 'keys', 'ZREM', key, 'a' },
  { 'keys', 'ZREMRANGEBYSCORE', key, '0', '1' },
  { 'keys', 'ZREMRANGEBYRANK', key, '0', '0' },
  { 'keys', 'RPUSH', key, 'a' },
  { 'keys', 'LINDEX', key, '0' },
  { 'keys', 'LRANGE', key, '0', '0' },
  { 'keys', 'LSET', key, '0', '' },
  { 'keys', 'LREM', key, '0', '' },
  { 'keys', 'LTRIM', key, '0', '0' },
  { 'keys', 'HSET', key, 'a', '1' },
  { 'keys', 'HGET', key, 'a' },
  { 'keys', 'HGETALL', key },
  { 'keys', 'HDEL', key, 'a' },
  { 'keys', 'TYPE', key },
  { 'keys', 'PTTL', key },
  { 'keys', 'PEXPIRE', key, '1000' },
  { 'keys', 'DEL', key },
  { 'keys', 'UNLINK', key },
  { 'channel', 'PUBLISH', channel, '' },
  { 'channel', 'SUBSCRIBE', channel },
}
if ARGV[2] == 'cluster' then
  commands[#commands + 1] = { 'keys', 'GET', key }
  commands[#commands + 1] = { 'server', 'CLUSTER', 'SLOTS' }
  commands[#commands + 1] = { 'server', 'CLUSTER', 'KEYSLOT', key }
  commands[#commands + 1] = { 'server', 'ASKING' }
elseif ARGV[2] == 'sentinel' then
  commands[#commands + 1] = { 'server', 'ROLE' }
end
local two_words = { SCRIPT = true, CLUSTER = true }
local not_tried = { SCRIPT = true, CLUSTER = true, ASKING = true, ROLE = true, MULTI = true, EXEC = true, PUBLISH = true, SUBSCRIBE = true }

-- Whether a command is `refused`, `unknown` or neither; and whether it had an effect.
local function check(command)
  if redis.acl_check_cmd then
    local known, allowed = pcall(redis.acl_check_cmd, unpack(command, 2))
    return not known and 'unknown' or not allowed and 'refused', true
  end
  if not_tried[command[2]] then return nil, true end
  local reply = redis.pcall(unpack(command, 2))
  local problem = type(reply) == 'table' and reply.err
  if not problem then return nil, true end
  local function mentions(words) return problem:find(words, 1, true) end
  if mentions('NOPERM') or mentions("can't run this command") or mentions("can't access at least one of the keys") then
    return 'refused', false
  end
  return mentions('Unknown Redis command') and 'unknown', false
end

local found = {}
for _, command in ipairs(commands) do
  local problem, effect = check(command)
  if problem then
    local name = two_words[command[2]] and command[2] .. ' ' .. command[3] or command[2]
    found[#found + 1] = problem .. ' ' .. command[1] .. ' ' .. name
  end
  -- Without its string, other commands would leave a key behind.
  if command[2] == 'SET' and not effect then break end
end
return found
