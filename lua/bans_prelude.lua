-- What the scripts share that change bans; it stands before each of them, behind key_prelude.lua.
--
-- KEYS[1] the bans: a sorted set, by when each ends, in microseconds since the Unix epoch. A ban is `e` (enforced) or `s`
--         (shadow), a space and its key: `e ip:203.0.113.7`
-- KEYS[2] their details: a hash, by ban: when it began, in microseconds, the level, and JSON, parted by spaces
-- KEYS[3] the version: a hash of the epoch, which is new whenever all bans were lost, and n, which each change raises by one
-- KEYS[4] the ladders: a hash, by key, of packed tables: by rule, {level, length and end of the last ban, when the last
--         denial was, the number of the newest bucket, the counts of the buckets}
-- KEYS[5] the expiries: a sorted set of the keys of ladders, by when nothing in them counts any more
--
-- Instances of several versions write and read all of these: what can't be read is taken as not there. Times are by Redis'
-- clock, in microseconds.

local bans, details, version, ladders, expiries = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- 366 days: no ban is longer, and no step is remembered for longer.
local LONGEST = 31622400000000
-- Changes, as they were published.
local changes = {}

local function whole(number)
  return string.format('%.0f', number)
end

-- The epoch, or false where there is none, and n.
local function read_version()
  local epoch = redis.call('HGET', version, 'epoch')
  local n = tonumber(redis.call('HGET', version, 'n') or '')
  if not epoch or not n or n < 0 or n >= 9007199254740992 or n % 1 ~= 0 then
    return false, 0
  end
  return epoch, n
end

-- Publishes a change to all instances. Where there is no epoch, `new_epoch` begins.
local function publish_change(channel, new_epoch, ...)
  local epoch, n = read_version()
  epoch, n = epoch or new_epoch, n + 1
  redis.call('HSET', version, 'epoch', epoch, 'n', whole(n))
  local change = cjson.encode({epoch, whole(n), ...})
  changes[#changes + 1] = change
  -- An instance that misses it finds out by the version.
  redis.pcall('PUBLISH', channel, change)
end

local function remove_ban(ban)
  redis.call('HDEL', details, ban)
  return redis.call('ZREM', bans, ban) == 1
end

-- Removes some of the bans that have ended.
local function remove_ended()
  for _, ban in ipairs(redis.call('ZRANGEBYSCORE', bans, '-inf', whole(now), 'LIMIT', 0, 64)) do
    remove_ban(ban)
  end
end

-- Stores a ban, and says whether there was room. `force`: make room even where every other ban ends later.
local function put_ban(channel, new_epoch, ban, lasts, since, level, json, max_bans, force)
  local ends = now + lasts
  if not redis.call('ZSCORE', bans, ban) and redis.call('ZCARD', bans) >= max_bans then
    remove_ended()
    local first = redis.call('ZRANGE', bans, 0, 0, 'WITHSCORES')
    if redis.call('ZCARD', bans) >= max_bans and first[1] then
      if not force and tonumber(first[2]) >= ends then
        return false
      end
      remove_ban(first[1])
      publish_change(channel, new_epoch, 'dropped', first[1])
    end
  end
  redis.call('ZADD', bans, whole(ends), ban)
  redis.call('HSET', details, ban, whole(since) .. ' ' .. whole(level) .. ' ' .. json)
  for _, key in ipairs({bans, details, version}) do
    extend_expiry(key, math.ceil(lasts / 1000) + 86400000)
  end
  publish_change(channel, new_epoch, 'banned', ban, whole(lasts), whole(now - since), whole(level), json)
  return true
end

-- The ladders of a key, by rule.
local function read_ladders(key)
  local packed = redis.call('HGET', ladders, key)
  local is_read, rules = pcall(cmsgpack.unpack, packed or '')
  return is_read and type(rules) == 'table' and rules or {}
end

-- Stores the ladders of a key, in which nothing counts any more from `expiry` on. Where there are too many, those that expire
-- first go.
local function store_ladders(key, rules, expiry, max_ladders)
  redis.call('HSET', ladders, key, cmsgpack.pack(rules))
  expiry = math.max(expiry, tonumber(redis.call('ZSCORE', expiries, key) or 0) or 0)
  redis.call('ZADD', expiries, whole(expiry), key)
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

for at, kind in ipairs({'zset', 'hash', 'hash', 'hash', 'zset'}) do
  remove_other_type(KEYS[at], kind)
end
