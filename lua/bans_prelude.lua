-- The shared part of scripts that change bans. It precedes each of them and follows key_prelude.lua and
-- version_prelude.lua.
--
-- KEYS[1] the bans: a sorted set, by when each ends, in microseconds since the Unix epoch. A ban is `e` (enforced) or
--         `s` (shadow), a space and its key: `e ip:203.0.113.7`
-- KEYS[2] their details: a hash, by ban: when it began, in microseconds, the level, and JSON, separated by spaces
-- KEYS[3] the version
-- KEYS[4] the ladders: a hash, by key, of packed tables: by rule, {level, length and end of the last ban, when the last
--         denial was, the number of the newest bucket, the counts of the buckets}
-- KEYS[5] the expiries: a sorted set of the addresses that have ladders, by when nothing in them counts any more
-- KEYS[6…8] the bans of each class, as in KEYS[1]: manual ones, of addresses by rules, of users by rules. Bans of one
--         class never push out those of another: any client can make up users. Bans written by an instance of an
--         earlier version are in none of them, and bans removed by it may still be in one
-- KEYS[9] the expiries of users
-- KEYS[10] the lifts of the last day: a sorted set of keys, by when their bans were lifted. An instance that still
--         knows an earlier ban must not restore it after Redis has lost it
--
-- Instances of several versions write and read all of these: unreadable values count as absent. Times are by Redis'
-- clock, in microseconds.

local bans, details, version, ladders = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local address_expiries, user_expiries, lifts = KEYS[5], KEYS[9], KEYS[10]
local manual, by_class = KEYS[6], {KEYS[6], KEYS[7], KEYS[8]}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- 366 days: no ban is longer, and no step is kept longer.
local LONGEST = 31622400000000
local BUCKETS = 8
-- Changes as published.
local changes = {}

-- Publishes a change to all instances. If there is no epoch, `new_epoch` begins.
local function publish_change(channel, new_epoch, ...)
  local epoch, n = next_version(version, new_epoch)
  local change = cjson.encode({epoch, whole(n), ...})
  changes[#changes + 1] = change
  -- An instance that misses it notices by the version.
  redis.pcall('PUBLISH', channel, change)
end

-- When a member of a sorted set ends. 0 if it is not there, or another program has written a time that is none.
local function time_in(set, member)
  local time = tonumber(redis.call('ZSCORE', set, member) or '')
  return time and time >= 0 and time <= 9007199254740992 and time or 0
end

local function is_user(key)
  return string.sub(key, 1, 5) == 'user:'
end

local function remove_ban(ban)
  for _, class in ipairs(by_class) do
    redis.call('ZREM', class, ban)
  end
  redis.call('HDEL', details, ban)
  return redis.call('ZREM', bans, ban) == 1
end

-- Removes some of the bans that have ended.
local function remove_ended()
  for _, ban in ipairs(redis.call('ZRANGEBYSCORE', bans, '-inf', whole(now), 'LIMIT', 0, 64)) do
    remove_ban(ban)
  end
end

-- The ban of a class that ends first, and when.
local function earliest(class)
  for _ = 1, 1000 do
    local first = redis.call('ZRANGE', class, 0, 0)[1]
    local ends = first and redis.call('ZSCORE', bans, first)
    if ends or not first then
      return first, tonumber(ends)
    end
    redis.call('ZREM', class, first)
  end
end

-- Makes room for one more ban of a class. Returns whether there is room. Bans that end at this time or later are kept.
local function make_room(channel, new_epoch, class, max_bans, ends)
  if redis.call('ZCARD', class) < max_bans then
    return true
  end
  remove_ended()
  local first, first_ends = earliest(class)
  if redis.call('ZCARD', class) < max_bans then
    return true
  end
  if not first or first_ends >= ends then
    return false
  end
  remove_ban(first)
  publish_change(channel, new_epoch, 'dropped', first)
  return true
end

-- Stores a ban. Returns whether there was room. A manual one has room even if all other manual ones end later.
local function put_ban(channel, new_epoch, ban, lasts, since, level, json, max_bans)
  local ends = now + lasts
  local class = manual
  if level > 0 then
    class = is_user(string.sub(ban, 3)) and KEYS[8] or KEYS[7]
  end
  local stays = level > 0 and ends or math.huge
  if not redis.call('ZSCORE', class, ban) and not make_room(channel, new_epoch, class, max_bans, stays) then
    return false
  end
  remove_ban(ban)
  redis.call('ZADD', bans, whole(ends), ban)
  redis.call('ZADD', class, whole(ends), ban)
  redis.call('HSET', details, ban, whole(since) .. ' ' .. whole(level) .. ' ' .. json)
  publish_change(channel, new_epoch, 'banned', ban, whole(lasts), whole(now - since), whole(level), json)
  for _, key in ipairs({bans, details, version, class}) do
    extend_expiry(key, math.ceil(lasts / 1000) + 86400000)
  end
  return true
end

-- Whether this ban is manual and has not ended.
local function is_manual(ban)
  return time_in(manual, ban) > now and redis.call('ZSCORE', bans, ban)
end

-- The ladders of a key, by rule.
local function read_ladders(key)
  local packed = redis.call('HGET', ladders, key)
  local is_read, rules = pcall(cmsgpack.unpack, packed or '')
  return is_read and type(rules) == 'table' and rules or {}
end

-- A ladder that was read, or an empty one if that is invalid.
local function valid_or_empty(ladder)
  if type(ladder) ~= 'table' then
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  end
  for at = 1, 5 + BUCKETS do
    local number = ladder[at]
    if type(number) ~= 'number' or number % 1 ~= 0 or number < 0 or number > 9007199254740992 then
      return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
    end
  end
  return ladder
end

-- The level of the last ban at this time: each quiet period as long as that ban lowers it by one.
local function decayed_level(ladder, time)
  local passed = math.floor(math.max(time - ladder[3], 0) / math.max(ladder[2], 1))
  return math.max(ladder[1] - passed, 0)
end

-- Stores the ladders of a key, in which nothing counts any more from `expiry` on. If there are too many addresses, or
-- too many users, those that expire first are removed.
local function store_ladders(key, rules, expiry, max_ladders)
  local expiries = is_user(key) and user_expiries or address_expiries
  redis.call('HSET', ladders, key, cmsgpack.pack(rules))
  expiry = math.max(expiry, time_in(expiries, key))
  redis.call('ZADD', expiries, whole(expiry), key)
  if expiries == user_expiries then
    -- Instances of earlier versions put all keys there.
    redis.call('ZREM', address_expiries, key)
  end
  local ttl = math.ceil((expiry - now) / 1000) + 1000
  extend_expiry(ladders, ttl)
  extend_expiry(expiries, ttl)
  local expired = redis.call('ZRANGEBYSCORE', expiries, '-inf', whole(now), 'LIMIT', 0, 2)
  if redis.call('ZCARD', expiries) > max_ladders then
    expired[#expired + 1] = redis.call('ZRANGE', expiries, 0, 0)[1]
  end
  for _, old in ipairs(expired) do
    redis.call('HDEL', ladders, old)
    redis.call('ZREM', expiries, old)
  end
end

-- Forgets the ladders of a key.
local function remove_ladders(key)
  redis.call('HDEL', ladders, key)
  redis.call('ZREM', address_expiries, key)
  redis.call('ZREM', user_expiries, key)
end

for at, kind in ipairs({'zset', 'hash', 'hash', 'hash', 'zset', 'zset', 'zset', 'zset', 'zset', 'zset'}) do
  remove_other_type(KEYS[at], kind)
end
