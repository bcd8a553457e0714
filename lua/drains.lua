-- Drains endpoints and undrains them, for all instances. key_prelude.lua stands before it.
--
-- KEYS[1]  the drains: a hash, by endpoint (the name of its upstream, a space, its URL), of JSON; of one that was undrained in
--          the last day, `undrained` and when, in seconds; and under `version` what is new with each change
-- ARGV[1]  the channel where a change is announced, and ARGV[2] the message; ARGV[3] the version from now on;
--          ARGV[4] how many drains there may be; ARGV[5] milliseconds for which they stay
-- ARGV[6…] for each: `drain`, `restore` (of one that was lost and an instance still knows) or `undrain`; the endpoint;
--          and the JSON. Of `undrain` empty, or, where an instance tells it once more, when it was, in microseconds since the
--          Unix epoch: a drain from after that stays
-- Reply    how many drains found no room

local drains = KEYS[1]
local max = tonumber(ARGV[4])
remove_other_type(drains, 'hash')
local now = tonumber(redis.call('TIME')[1])
local is_changed, refused, count = false, 0, 0

-- When the endpoint was undrained, by what is stored of it.
local function undrained_at(stored)
  return tonumber(string.match(stored, '^undrained (%d+)$') or '')
end

local all = redis.call('HGETALL', drains)
for at = 1, #all, 2 do
  local undrained = undrained_at(all[at + 1])
  if undrained and undrained + 86400 < now then
    redis.call('HDEL', drains, all[at])
  elseif not undrained and all[at] ~= 'version' then
    count = count + 1
  end
end
for base = 6, #ARGV - 2, 3 do
  local action, endpoint, json = ARGV[base], ARGV[base + 1], ARGV[base + 2]
  local stored = redis.call('HGET', drains, endpoint)
  local is_drained = stored and not undrained_at(stored)
  local drained_at = is_drained and tonumber(string.match(stored, '"since":(%d+)') or '') or 0
  if action == 'undrain' and drained_at > (tonumber(json) or math.huge) then
    -- An operator has drained it since.
  elseif action == 'undrain' then
    -- An instance that finds it gone must not take it for lost, also if Redis has lost it meanwhile.
    redis.call('HSET', drains, endpoint, 'undrained ' .. string.format('%.0f', now))
    is_changed, count = true, count - (is_drained and 1 or 0)
  elseif stored and action == 'restore' then
    -- What other instances have done with it since stays.
  elseif not is_drained and count >= max then
    refused = refused + 1
  else
    redis.call('HSET', drains, endpoint, json)
    is_changed, count = true, count + (is_drained and 0 or 1)
  end
end
if is_changed then
  redis.call('HSET', drains, 'version', ARGV[3])
  redis.call('PEXPIRE', drains, ARGV[5])
  -- An instance that misses it finds out by the version.
  redis.pcall('PUBLISH', ARGV[1], ARGV[2])
end
return refused
