-- Stores versions of API keys. It follows key_prelude.lua and version_prelude.lua.
--
-- KEYS[1]  the records: a hash, by ID: `FINALITY CHANGED TIE JSON`. The three numbers order the versions of a key, the
--          first one first: a tombstone is greater than any version in use
-- KEYS[2]  the order: a sorted set of the IDs, by the number of the last change of each
-- KEYS[3]  the version
-- KEYS[4]  the tombstones: a sorted set of the IDs of revoked and deleted keys, by until when they are kept, in
--          microseconds since the Unix epoch
-- KEYS[5]  the last uses: a sorted set of IDs, by minutes since the Unix epoch
-- None of them expires: keys are no counters.
-- ARGV[1]  the channel for changes, and ARGV[2] the message; ARGV[3] the epoch to begin if there is none; ARGV[4] most
--          keys
-- ARGV[5…] for each: the ID; FINALITY; CHANGED; TIE; until when the tombstone is kept, 0 if it is none; JSON; and the
--          version that it replaces, `FINALITY CHANGED TIE`: empty if the key is new, `*` for any that is not greater
-- Reply    for each: empty if it is stored, or a greater one may be; `full` if there was no room; and if Redis has another
--          version than the one to replace, its record, or `missing` if it has none

local WIDTH = 7
local records, order, version, tombstones, uses = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local max_keys = tonumber(ARGV[4])
for at, kind in ipairs({'hash', 'zset', 'hash', 'zset', 'zset'}) do
  remove_other_type(KEYS[at], kind)
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local reply, is_changed = {}, false

-- Whether the stored version is this one, or a greater one.
local function holds(stored, stamp)
  local numbers = {string.match(stored or '', '^(%d+) (%d+) (%d+) ')}
  for at = 1, #stamp do
    local has, new = tonumber(numbers[at] or ''), tonumber(stamp[at])
    if has ~= new then
      return has ~= nil and has <= 9007199254740992 and has > new
    end
  end
  return true
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', tombstones, '-inf', whole(now), 'LIMIT', 0, 64)) do
  redis.call('HDEL', records, id)
  redis.call('ZREM', order, id)
  redis.call('ZREM', tombstones, id)
  redis.call('ZREM', uses, id)
end
if not read_version(version) then
  -- The version alone was lost: the numbers go on above those of the keys.
  local last = redis.call('ZRANGE', order, -1, -1, 'WITHSCORES')
  local n = tonumber(last[2] or '')
  if n and n >= 0 and n < 9007199254740992 then
    redis.call('HSET', version, 'epoch', ARGV[3], 'n', whole(n))
  end
end
for base = 5, #ARGV - WIDTH + 1, WIDTH do
  local id, stamp = ARGV[base], {ARGV[base + 1], ARGV[base + 2], ARGV[base + 3]}
  local kept_until, replaced = tonumber(ARGV[base + 4]), ARGV[base + 6]
  local stored = redis.call('HGET', records, id)
  local current = string.match(stored or '', '^%d+ %d+ %d+') or ''
  local outcome = ''
  if current == table.concat(stamp, ' ') then
    -- It was stored by a call whose reply was lost.
  elseif replaced ~= '*' and replaced ~= current then
    outcome = stored or 'missing'
  elseif holds(stored, stamp) or kept_until > 0 and kept_until <= now then
    -- Nothing new.
  elseif not stored and redis.call('ZCARD', order) >= max_keys then
    outcome = 'full'
  else
    local _, n = next_version(version, ARGV[3])
    redis.call('HSET', records, id, table.concat(stamp, ' ') .. ' ' .. ARGV[base + 5])
    redis.call('ZADD', order, whole(n), id)
    if kept_until > 0 then
      redis.call('ZADD', tombstones, whole(kept_until), id)
    else
      redis.call('ZREM', tombstones, id)
    end
    is_changed = true
  end
  reply[#reply + 1] = outcome
end
if is_changed then
  -- An instance that misses it notices by the version.
  redis.pcall('PUBLISH', ARGV[1], ARGV[2])
end
return reply
