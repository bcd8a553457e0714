-- Writes down what one instance knows of some limited clients, and that they have changed.
--
-- KEYS[1]   the index: a sorted set of addresses, by the time of their last change in microseconds
-- KEYS[2…]  two for each client: a hash: by the id of an instance, what that knows of it; and "forgotten", a
--           time in microseconds: what was denied until then is void; and the HyperLogLog of the users who were seen
--           behind it in one slice of time
-- ARGV[1]   the id of the instance
-- ARGV[2]   milliseconds for which an address stays in the index without a change
-- ARGV[3]   addresses that the index may hold
-- ARGV[4]   fields that a hash may have
-- ARGV[5]   microseconds since the Unix epoch by the instance's own clock, which may be another than Redis'
-- ARGV[6…]  for each client: its address, the time of its last denial in microseconds, milliseconds for
--           which its hash stays at least, the snapshot, how many users are new, and a hash of each
-- Reply     two lists: the positions of clients that were not written, since they were forgotten after
--           their last denial; and addresses that are too many, which the caller is to remove
--
-- Snapshots are JSON, and "last" stands near their beginning: that is all that is read of them here.

local index, instance = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local behind = now - tonumber(ARGV[5])
-- A second.
local AHEAD = 1000000

-- A key of ours that holds something else is worth nothing, and would be in the way for ever.
local function heal(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then
    redis.call('DEL', key)
  end
end

-- Never shortens what another instance wants longer, and heals a key without expiry.
local function keep(key, milliseconds)
  if redis.call('PTTL', key) < milliseconds then
    redis.call('PEXPIRE', key, milliseconds)
  end
end

-- Instances that are gone leave their fields behind: the one that was denied longest ago goes.
local function shrink(key)
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

-- Whatever else than a HyperLogLog is there is worth nothing.
local function add(key, from, to)
  local said = redis.pcall('PFADD', key, unpack(ARGV, from, to))
  if type(said) == 'table' and said.err then
    if said.err:find('^WRONGTYPE') or said.err:find('^INVALIDOBJ') then
      redis.call('DEL', key)
    end
    redis.call('PFADD', key, unpack(ARGV, from, to))
  end
end

heal(index, 'zset')
local refused, crowded = {}, {}
local at = 6
for client = 1, (#KEYS - 1) / 2 do
  local key, sketch = KEYS[client * 2], KEYS[client * 2 + 1]
  local address, last, stays, snapshot = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local users, first = tonumber(ARGV[at + 4]), at + 5
  heal(key, 'hash')
  local forgotten = tonumber(redis.call('HGET', key, 'forgotten') or '')
  -- By a clock that was set back since, or that of a server that this one took the place of.
  if forgotten and forgotten > now + AHEAD then
    forgotten = nil
    redis.call('HDEL', key, 'forgotten')
  end
  if forgotten and last + behind <= forgotten then
    refused[#refused + 1] = client
  else
    redis.call('HSET', key, instance, snapshot)
    keep(key, stays)
    if redis.call('HLEN', key) > tonumber(ARGV[4]) then
      shrink(key)
    end
    redis.call('ZADD', index, string.format('%.0f', now), address)
    -- A call takes a bounded number of values.
    for from = first, first + users - 1, 1000 do
      add(sketch, from, math.min(from + 999, first + users - 1))
    end
    if users > 0 then
      redis.call('PEXPIRE', sketch, ARGV[2])
    end
  end
  at = first + users
end

-- By the longest time that any instance has wanted lately.
keep(index, tonumber(ARGV[2]))
local stays = redis.call('PTTL', index)
redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('(%.0f', now - stays * 1000))
local excess = redis.call('ZCARD', index) - tonumber(ARGV[3])
if excess > 0 then
  crowded = redis.call('ZRANGE', index, 0, math.min(excess, 256) - 1)
end
return {refused, crowded}
