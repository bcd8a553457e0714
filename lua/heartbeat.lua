-- An instance says that it lives, and asks how many do.
--
-- KEYS[1] the instances: a sorted set of their IDs by when each was last heard of, in microseconds since the Unix epoch
-- ARGV[1] the instance's ID; ARGV[2] for how many microseconds it counts as alive; 0: it says good-bye
-- reply   how many instances live

local time = redis.call('TIME')
local now, alive = time[1] * 1000000 + time[2], tonumber(ARGV[2])
if alive == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return redis.call('ZCARD', KEYS[1])
end
local said = redis.pcall('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
if type(said) == 'table' and said.err then
  if not said.err:find('WRONGTYPE', 1, true) then return said end
  -- Somebody else wrote here.
  redis.call('DEL', KEYS[1])
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - alive))
-- Of the time to come nobody was heard: the clock was set back. Who lives says so again.
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
redis.call('PEXPIRE', KEYS[1], math.ceil(alive / 1000))
return redis.call('ZCARD', KEYS[1])
