-- An instance says that it lives, and asks how many do. Now and then it says what it is, and asks what the others are.
--
-- KEYS[1] the instances: a sorted set of their IDs by when each was last heard of, in microseconds since the Unix epoch
-- KEYS[2] what they say of themselves: a hash of `OFFSET WORDS` by their IDs, OFFSET being how far its clock is ahead
-- ARGV[1] the instance's ID; ARGV[2] for how many microseconds it counts as alive; 0: it says good-bye
-- ARGV[3] what its clock says, in microseconds; ARGV[4] its words; both may be left out
-- reply   how many instances live; by how many microseconds its clock is ahead; what the others say of themselves, of
--         256 at most. The last two are 0 and nothing where it has not said its words

local time = redis.call('TIME')
local now, alive = time[1] * 1000000 + time[2], tonumber(ARGV[2])
if alive == 0 then
  redis.pcall('HDEL', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[1], ARGV[1])
  local living = redis.call('ZCARD', KEYS[1])
  if living == 0 then redis.pcall('DEL', KEYS[2]) end
  return { living, 0, {} }
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
local living = redis.call('ZCARD', KEYS[1])
if not ARGV[4] then return { living, 0, {} } end

-- What is only good to know must not keep anybody from saying that he lives.
local offset = tonumber(ARGV[3]) - now
said = redis.pcall('HSET', KEYS[2], ARGV[1], string.format('%.0f ', offset) .. ARGV[4])
if type(said) == 'table' and said.err then
  if said.err:find('WRONGTYPE', 1, true) then redis.pcall('DEL', KEYS[2]) end
  return { living, offset, {} }
end
-- Each says so again before that.
redis.pcall('PEXPIRE', KEYS[2], math.ceil(alive / 500))
local all, others = redis.pcall('HGETALL', KEYS[2]), {}
for i = 1, all.err and 0 or #all, 2 do
  if redis.pcall('ZSCORE', KEYS[1], all[i]) == false then
    redis.pcall('HDEL', KEYS[2], all[i])
  elseif all[i] ~= ARGV[1] and #others < 256 then
    others[#others + 1] = all[i + 1]
  end
end
return { living, offset, others }
