-- Stores what one instance knows of some limited clients, and that they have changed. key_prelude.lua stands before it.
--
-- KEYS[1]   the index: a sorted set of addresses, by the time of their last change in microseconds
-- KEYS[2…]  two for each client: a hash: by the id of an instance, what that knows of it; and "forgotten", a
--           time in microseconds: what was denied until then does not count; and the HyperLogLog of the users who were seen
--           behind it in one slice of time
-- ARGV[1]   the id of the instance
-- ARGV[2]   milliseconds for which an address stays in the index without a change
-- ARGV[3]   how many addresses the index may hold
-- ARGV[4]   how many fields a hash may have
-- ARGV[5]   microseconds since the Unix epoch by the instance's own clock, which may be another than Redis'
-- ARGV[6…]  for each client: its address, the time of its last denial in microseconds, milliseconds for
--           which its hash stays at least, the snapshot, how many users are new, and a hash of each
-- Reply     two lists: the positions of clients that were not stored, since they were forgotten after
--           their last denial; and addresses beyond what the index may hold, which the caller is to remove
--
-- Snapshots are JSON, and "last" stands near their beginning: that is all that is read of them here.

local index, instance = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local clock_lag = now - tonumber(ARGV[5])
-- Microseconds that a time may be ahead of this clock.
local MAX_AHEAD = 1000000

-- Instances that are gone leave their fields behind. Remove the field whose last denial is oldest.
local function remove_oldest_field(key)
  local fields = redis.call('HGETALL', key)
  local oldest, since
  for at = 1, #fields, 2 do
    local last = tonumber(string.match(fields[at + 1], '"last":(%d+)')) or 0
    if fields[at] ~= instance and fields[at] ~= 'forgotten' and (not since or last < since) then
      oldest, since = fields[at], last
    end
  end
  if oldest then
    redis.call('HDEL', key, oldest)
  end
end

-- Adds users to a HyperLogLog. A key that holds anything else is replaced.
local function add_users(key, from, to)
  local reply = redis.pcall('PFADD', key, unpack(ARGV, from, to))
  if type(reply) == 'table' and reply.err then
    if reply.err:find('^WRONGTYPE') or reply.err:find('^INVALIDOBJ') then
      redis.call('DEL', key)
    end
    redis.call('PFADD', key, unpack(ARGV, from, to))
  end
end

remove_other_type(index, 'zset')
local refused, excess_addresses = {}, {}
local at = 6
for client = 1, (#KEYS - 1) / 2 do
  local key, sketch = KEYS[client * 2], KEYS[client * 2 + 1]
  local address, last, ttl, snapshot = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local users, first = tonumber(ARGV[at + 4]), at + 5
  remove_other_type(key, 'hash')
  local forgotten = tonumber(redis.call('HGET', key, 'forgotten') or '')
  -- A time from the future: the clock was set back, or another server stood here before.
  if forgotten and forgotten > now + MAX_AHEAD then
    forgotten = nil
    redis.call('HDEL', key, 'forgotten')
  end
  if forgotten and last + clock_lag <= forgotten then
    refused[#refused + 1] = client
  else
    redis.call('HSET', key, instance, snapshot)
    extend_expiry(key, ttl)
    if redis.call('HLEN', key) > tonumber(ARGV[4]) then
      remove_oldest_field(key)
    end
    redis.call('ZADD', index, string.format('%.0f', now), address)
    -- A call takes a bounded number of values.
    for from = first, first + users - 1, 1000 do
      add_users(sketch, from, math.min(from + 999, first + users - 1))
    end
    if users > 0 then
      redis.call('PEXPIRE', sketch, ARGV[2])
    end
  end
  at = first + users
end

-- Entries stay for the longest time that any instance has asked for lately.
extend_expiry(index, tonumber(ARGV[2]))
local retained = redis.call('PTTL', index)
redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('(%.0f', now - retained * 1000))
local count_excess = redis.call('ZCARD', index) - tonumber(ARGV[3])
if count_excess > 0 then
  excess_addresses = redis.call('ZRANGE', index, 0, math.min(count_excess, 256) - 1)
end
return {refused, excess_addresses}
