-- Writes down what one instance knows of some limited clients, and that they have changed.
--
-- KEYS[1]   the index: a sorted set of addresses, by the time of their last change in microseconds
-- KEYS[2…]  a hash for each client: by the id of an instance, what that knows of it; and "forgotten", a
--           time in microseconds: what was denied until then is void
-- ARGV[1]   the id of the instance
-- ARGV[2]   milliseconds for which an address stays in the index without a change
-- ARGV[3]   addresses that the index may hold
-- ARGV[4]   fields that a hash may have
-- ARGV[5]   microseconds since the Unix epoch by the instance's own clock, which may be another than Redis'
-- ARGV[6…]  for each client: its address, the time of its last denial in microseconds, milliseconds for
--           which its hash stays at least, and the snapshot
-- Reply     two lists: the positions of clients that were not written, since they were forgotten after
--           their last denial; and addresses that are too many, which the caller is to remove
--
-- Snapshots are JSON, and "last" stands near their beginning: that is all that is read of them here.

local index, instance = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local behind = now - tonumber(ARGV[5])

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

heal(index, 'zset')
local refused, crowded = {}, {}
for client = 1, #KEYS - 1 do
  local key, at = KEYS[client + 1], 2 + client * 4
  local address, last, stays, snapshot = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  heal(key, 'hash')
  local forgotten = tonumber(redis.call('HGET', key, 'forgotten') or '')
  if forgotten and last + behind <= forgotten then
    refused[#refused + 1] = client
  else
    redis.call('HSET', key, instance, snapshot)
    keep(key, stays)
    if redis.call('HLEN', key) > tonumber(ARGV[4]) then
      shrink(key)
    end
    redis.call('ZADD', index, string.format('%.0f', now), address)
  end
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
