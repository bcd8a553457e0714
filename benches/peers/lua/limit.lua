-- nginx, Lua and Redis as a team would write it: one EVALSHA a request, over connections that are kept.
local redis = require "nginx.redis"
local limits, hashes = {}, {}

local COUNTER = [[
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return count]]

local LOG = [[
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[2] * 1000000)
local count = redis.call('ZCARD', KEYS[1])
if count < tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], now, now)
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return count + 1]]

local function check(script, key, limit, window)
  local connection = redis:new()
  connection:set_timeout(1000)
  local connected, problem = connection:connect("127.0.0.1", 28079)
  if not connected then ngx.log(ngx.ERR, problem) return ngx.exit(500) end
  if not hashes[script] then hashes[script] = connection:script("load", script) end
  local count
  count, problem = connection:evalsha(hashes[script], 1, "limit:" .. key, limit, window)
  if not count then ngx.log(ngx.ERR, problem) return ngx.exit(500) end
  connection:set_keepalive(60000, 128)
  if count > limit then return ngx.exit(429) end
end

function limits.counter(key, limit, window) check(COUNTER, key, limit, window) end
function limits.log(key, limit, window) check(LOG, key, limit, window) end
return limits
