-- Records that an instance is alive, and counts live ones. Now and then the instance also introduces itself and reads
-- the introductions of the others.
--
-- KEYS[1] the instances: a sorted set of their IDs by the last heartbeat of each, in microseconds since the Unix epoch
-- KEYS[2] their introductions: a hash of `OFFSET WORDS` by their IDs, OFFSET being how far the instance's clock is
--         ahead
-- ARGV[1] the instance's ID; ARGV[2] microseconds for which it counts as alive; 0: it leaves
-- ARGV[3] the lifetime of both keys without a heartbeat, in milliseconds
-- ARGV[4] the time by its clock, in microseconds; ARGV[5] its introduction; both may be left out
-- reply   the number of live instances; microseconds by which its clock is ahead; the introductions of the others, 256
--         at most. The last two are 0 and empty if it has not introduced itself

local time = redis.call('TIME')
local now, alive = time[1] * 1000000 + time[2], tonumber(ARGV[2])
if alive == 0 then
  redis.pcall('HDEL', KEYS[2], ARGV[1])
  redis.pcall('ZREM', KEYS[1], ARGV[1])
  local alive_count = tonumber(redis.pcall('ZCARD', KEYS[1])) or 0
  if alive_count == 0 then redis.pcall('DEL', KEYS[2]) end
  return { alive_count, 0, {} }
end
local reply = redis.pcall('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
if type(reply) == 'table' and reply.err then
  if not reply.err:find('WRONGTYPE', 1, true) then return reply end
  -- Another program wrote to this key.
  redis.call('DEL', KEYS[1])
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - alive))
-- Future times were written before the clock was set back. A live instance writes again.
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local alive_count = redis.call('ZCARD', KEYS[1])
if not ARGV[5] then return { alive_count, 0, {} } end

-- An introduction that can't be stored must not fail the heartbeat.
local offset = tonumber(ARGV[4]) - now
reply = redis.pcall('HSET', KEYS[2], ARGV[1], string.format('%.0f ', offset) .. ARGV[5])
if type(reply) == 'table' and reply.err then
  if reply.err:find('WRONGTYPE', 1, true) then redis.pcall('DEL', KEYS[2]) end
  return { alive_count, offset, {} }
end
redis.pcall('PEXPIRE', KEYS[2], ARGV[3])
local all, others = redis.pcall('HGETALL', KEYS[2]), {}
for i = 1, all.err and 0 or #all, 2 do
  if redis.pcall('ZSCORE', KEYS[1], all[i]) == false then
    redis.pcall('HDEL', KEYS[2], all[i])
  elseif all[i] ~= ARGV[1] and #others < 256 then
    others[#others + 1] = all[i + 1]
  end
end
return { alive_count, offset, others }
