-- Writes down from which addresses one instance has denied some users.
--
-- KEYS[1]   the index: a sorted set of what was seen, each an address, a space and a user, by the time of its last
--           change in microseconds
-- KEYS[2…]  for each: the user's hash: by address, for each instance that denied him there `ID DENIED LAST;`
-- ARGV[1]   the id of the instance
-- ARGV[2]   milliseconds for which what was seen is kept
-- ARGV[3]   how many the index may hold
-- ARGV[4]   addresses that a hash may have
-- ARGV[5]   microseconds since the Unix epoch by the instance's own clock, which may be another than Redis'
-- ARGV[6…]  for each: the address, the user, how many requests were denied, and the time of the last in microseconds
-- Reply     what is too much in the index, which the caller is to remove
--
-- Times in a hash are by Redis' clock, and what an instance says of an address takes the place of what it said before:
-- told twice, it does no harm.

local index, instance = KEYS[1], ARGV[1]
local stays, most = tonumber(ARGV[2]), tonumber(ARGV[4])
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

-- When somebody denied him there last.
local function latest(value)
  local last = 0
  for time in string.gmatch(value, '[^ ;]+ %d+ (%d+);') do
    last = math.max(last, tonumber(time))
  end
  return last
end

-- What the other instances say: some dozens of them, those that denied him last.
local function others(value)
  local parts = {}
  for id, denied, last in string.gmatch(value, '([^ ;]+) (%d+) (%d+);') do
    if id ~= instance then
      parts[#parts + 1] = { tonumber(last), id .. ' ' .. denied .. ' ' .. last .. ';' }
    end
  end
  table.sort(parts, function(one, other) return one[1] > other[1] end)
  local kept = ''
  for at = 1, math.min(#parts, 63) do
    kept = kept .. parts[at][2]
  end
  return kept
end

-- An eighth at once: to look for each alone would take long.
local function shrink(key)
  local fields, found = redis.call('HGETALL', key), {}
  for at = 1, #fields, 2 do
    found[#found + 1] = { latest(fields[at + 1]), fields[at] }
  end
  table.sort(found, function(one, other) return one[1] < other[1] end)
  for at = 1, math.min(#found, math.ceil(most / 8)) do
    redis.call('HDEL', key, found[at][2])
  end
end

heal(index, 'zset')
for nth = 1, #KEYS - 1 do
  local key, at = KEYS[nth + 1], 2 + nth * 4
  local address, user, denied, last = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]) + behind
  heal(key, 'hash')
  local said = string.format('%s %s %.0f;', instance, denied, last)
  redis.call('HSET', key, address, said .. others(redis.call('HGET', key, address) or ''))
  redis.call('PEXPIRE', key, stays)
  redis.call('ZADD', index, string.format('%.0f', now), address .. ' ' .. user)
  if redis.call('HLEN', key) > most then
    shrink(key)
  end
end

redis.call('PEXPIRE', index, stays)
redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('(%.0f', now - stays * 1000))
local excess = redis.call('ZCARD', index) - tonumber(ARGV[3])
if excess > 0 then
  return redis.call('ZRANGE', index, 0, math.min(excess, 512) - 1)
end
return {}
