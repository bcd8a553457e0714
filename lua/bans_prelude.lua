-- What the scripts of bans share; it stands before each of them.
--
-- KEYS[1] the ends: a sorted set of bans, by when each ends, in microseconds since the Unix epoch. A ban is `e` (enforced)
--         or `s` (shadow), a space and its key: `e ip:203.0.113.7`
-- KEYS[2] what is told of them: a hash, by ban: when it began, in microseconds, the level, and JSON, parted by spaces
-- KEYS[3] the version: a hash of the epoch, which is new whenever all was lost, and n, which each change raises by one
-- KEYS[4] the ladders: a hash, by key, of packed tables: by rule, {level, length and end of the last ban, when the last
--         denial was, the number of the newest bucket, the counts of the buckets}
-- KEYS[5] those ladders, by when they are of no weight any more: a sorted set
--
-- All of these are made up and found again by instances of several versions: what can't be read is taken as not there. Times
-- are Redis' own, in microseconds.

local ends, told, version, ladders, expiries = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- 366 days: no ban is longer, and no step is remembered for longer.
local LONGEST = 31622400000000
-- Changes, as they are told to all.
local changes = {}

local function whole(number)
  return string.format('%.0f', number)
end

-- A key of ours that holds something else is worth nothing, and would be in the way for ever.
local function heal(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then
    redis.call('DEL', key)
  end
end

local function keep(key, milliseconds)
  if redis.call('PTTL', key) < milliseconds then
    redis.call('PEXPIRE', key, milliseconds)
  end
end

-- The epoch, or false, and n.
local function standing()
  local epoch = redis.call('HGET', version, 'epoch')
  local n = tonumber(redis.call('HGET', version, 'n') or '')
  if not epoch or not n or n < 0 or n >= 9007199254740992 or n % 1 ~= 0 then
    return false, 0
  end
  return epoch, n
end

-- Tells all instances of a change: `fresh` begins an epoch where there is none.
local function tell(channel, fresh, ...)
  local epoch, n = standing()
  epoch, n = epoch or fresh, n + 1
  redis.call('HSET', version, 'epoch', epoch, 'n', whole(n))
  local change = cjson.encode({epoch, whole(n), ...})
  changes[#changes + 1] = change
  -- Whoever may not hear it finds out by the version.
  redis.pcall('PUBLISH', channel, change)
end

local function drop(ban)
  redis.call('HDEL', told, ban)
  return redis.call('ZREM', ends, ban) == 1
end

-- Forgets some of the bans that have ended.
local function prune()
  for _, ban in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', whole(now), 'LIMIT', 0, 64)) do
    drop(ban)
  end
end

-- Gives a ban, and says whether there was room. `must`: whether another may have to go that ends later.
local function give(channel, fresh, ban, lasts, since, level, json, most, must)
  local till = now + lasts
  if not redis.call('ZSCORE', ends, ban) and redis.call('ZCARD', ends) >= most then
    prune()
    local first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
    if redis.call('ZCARD', ends) >= most and first[1] then
      if not must and tonumber(first[2]) >= till then
        return false
      end
      drop(first[1])
      tell(channel, fresh, 'dropped', first[1])
    end
  end
  redis.call('ZADD', ends, whole(till), ban)
  redis.call('HSET', told, ban, whole(since) .. ' ' .. whole(level) .. ' ' .. json)
  for _, key in ipairs({ends, told, version}) do
    keep(key, math.ceil(lasts / 1000) + 86400000)
  end
  tell(channel, fresh, 'banned', ban, whole(lasts), whole(now - since), whole(level), json)
  return true
end

local function ladder_of(key)
  local packed = redis.call('HGET', ladders, key)
  local read, rules = pcall(cmsgpack.unpack, packed or '')
  return read and type(rules) == 'table' and rules or {}
end

-- Writes the ladders of a key down, of no weight any more at `till`. Those that are soonest of none go where there are too many.
local function save_ladder(key, rules, till, most)
  redis.call('HSET', ladders, key, cmsgpack.pack(rules))
  till = math.max(till, tonumber(redis.call('ZSCORE', expiries, key) or 0) or 0)
  redis.call('ZADD', expiries, whole(till), key)
  local stays = math.ceil((till - now) / 1000) + 1000
  keep(ladders, stays)
  keep(expiries, stays)
  local gone = redis.call('ZRANGEBYSCORE', expiries, '-inf', whole(now), 'LIMIT', 0, 2)
  if redis.call('ZCARD', expiries) > most then
    gone[#gone + 1] = redis.call('ZRANGE', expiries, 0, 0)[1]
  end
  for _, old in ipairs(gone) do
    redis.call('HDEL', ladders, old)
    redis.call('ZREM', expiries, old)
  end
end

for at, kind in ipairs({'zset', 'hash', 'hash', 'hash', 'zset'}) do
  heal(KEYS[at], kind)
end
