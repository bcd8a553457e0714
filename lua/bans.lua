-- Reads the version, and some of the bans.
--
-- KEYS[1…3] see bans_prelude.lua, which does not precede it, since nothing is written here
-- ARGV[1]   the least end of the bans to read, in microseconds since the Unix epoch; empty: now
-- ARGV[2]   how many bans to read; 0: the version alone
-- Reply     the epoch, empty if there is none; n; Redis' time; and for each ban, ordered by its end: the ban, its end,
--           and its details, empty if there are none

local bans, details, version = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function has_type(key, kind)
  return redis.call('TYPE', key).ok == kind
end

local reply = {'', '0', string.format('%.0f', now)}
if has_type(version, 'hash') then
  reply[1] = redis.call('HGET', version, 'epoch') or ''
  reply[2] = redis.call('HGET', version, 'n') or '0'
end
if tonumber(ARGV[2]) > 0 and has_type(bans, 'zset') and has_type(details, 'hash') then
  local from = ARGV[1] == '' and string.format('(%.0f', now) or ARGV[1]
  local found = redis.call('ZRANGEBYSCORE', bans, from, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
  for at = 1, #found, 2 do
    reply[#reply + 1] = found[at]
    reply[#reply + 1] = string.format('%.0f', tonumber(found[at + 1]))
    local text = redis.call('HGET', details, found[at]) or ''
    -- No instance writes longer ones.
    reply[#reply + 1] = #text <= 16384 and text or ''
  end
end
return reply
