-- Which of the commands that the other scripts need the user may not run.
--
-- KEYS[1] a key of its own, which is gone afterwards
-- reply   the names of those commands

local key, refused = KEYS[1], {}
local function try(...)
  local said = redis.pcall(...)
  if type(said) == 'table' and said.err and (said.err:find('NOPERM', 1, true) or said.err:find('permissions', 1, true)) then
    refused[#refused + 1] = (...)
  end
end
try('TIME')
try('SET', key, '1', 'PX', 1000)
try('GET', key)
try('DEL', key)
try('ZADD', key, 1, 'a')
try('ZRANGE', key, 0, 0)
try('ZRANGEBYSCORE', key, 0, 1)
try('ZCOUNT', key, 0, 1)
try('ZCARD', key)
try('ZREM', key, 'b')
try('ZREMRANGEBYSCORE', key, 2, 3)
try('PEXPIRE', key, 1000)
try('DEL', key)
try('RPUSH', key, 'a')
try('LINDEX', key, 0)
try('LTRIM', key, 0, 0)
try('LRANGE', key, 0, 0)
try('DEL', key)
try('HSET', key, 'a', 'b')
try('HGETALL', key)
try('DEL', key)
return refused
