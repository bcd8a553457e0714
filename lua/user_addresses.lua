-- Stores from which addresses one instance has denied some users. key_prelude.lua stands before it.
--
-- KEYS[1]   the index: a sorted set of pairs, each an address, a space and a user, by the time of its last
--           change in microseconds
-- KEYS[2…]  for each: the user's hash: by address, for each instance that denied the user there `ID DENIED LAST;`
-- ARGV[1]   the id of the instance
-- ARGV[2]   milliseconds for which a pair is kept
-- ARGV[3]   how many pairs the index may hold
-- ARGV[4]   how many addresses a hash may have
-- ARGV[5]   microseconds since the Unix epoch by the instance's own clock, which may be another than Redis'
-- ARGV[6…]  for each: the address, the user, how many requests were denied, and the time of the last in microseconds
-- Reply     the pairs beyond what the index may hold, which the caller is to remove
--
-- Times in a hash are by Redis' clock. What an instance reports of an address replaces what it reported before, so a report
-- that is sent twice does no harm.

local index, instance = KEYS[1], ARGV[1]
local ttl, max_addresses = tonumber(ARGV[2]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local clock_lag = now - tonumber(ARGV[5])

-- When any instance last denied the user at the address.
local function last_denied(value)
  local last = 0
  for time in string.gmatch(value, '[^ ;]+ %d+ (%d+);') do
    last = math.max(last, tonumber(time))
  end
  return last
end

-- What the other instances report, of the 63 that denied the user last.
local function other_reports(value)
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

-- Removes an eighth of the addresses at once, the oldest: to search for each alone would take long.
local function remove_oldest(key)
  local fields, found = redis.call('HGETALL', key), {}
  for at = 1, #fields, 2 do
    found[#found + 1] = { last_denied(fields[at + 1]), fields[at] }
  end
  table.sort(found, function(one, other) return one[1] < other[1] end)
  for at = 1, math.min(#found, math.ceil(max_addresses / 8)) do
    redis.call('HDEL', key, found[at][2])
  end
end

remove_other_type(index, 'zset')
for nth = 1, #KEYS - 1 do
  local key, at = KEYS[nth + 1], 2 + nth * 4
  local address, user, denied, last = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]) + clock_lag
  remove_other_type(key, 'hash')
  local report = string.format('%s %s %.0f;', instance, denied, last)
  redis.call('HSET', key, address, report .. other_reports(redis.call('HGET', key, address) or ''))
  redis.call('PEXPIRE', key, ttl)
  redis.call('ZADD', index, string.format('%.0f', now), address .. ' ' .. user)
  if redis.call('HLEN', key) > max_addresses then
    remove_oldest(key)
  end
end

redis.call('PEXPIRE', index, ttl)
redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('(%.0f', now - ttl * 1000))
local excess = redis.call('ZCARD', index) - tonumber(ARGV[3])
if excess > 0 then
  return redis.call('ZRANGE', index, 0, math.min(excess, 512) - 1)
end
return {}
