-- Drains and undrains endpoints, for all instances. It follows key_prelude.lua.
--
-- KEYS[1]  the drains: a hash of JSON by endpoint (the name of its upstream, a space, its URL); for an endpoint
--          undrained in the last day, `undrained` and the time, in seconds; and under `version` a text that is new with
--          each change
-- ARGV[1]  the channel for changes, and ARGV[2] the message; ARGV[3] the new version; ARGV[4] most drains; ARGV[5]
--          their lifetime in milliseconds
-- ARGV[6…] for each: `drain`, `restore` (of a lost one that an instance still knows) or `undrain`; the endpoint; and
--          the JSON. For `undrain`: empty, or, if an instance sends it again, the time of the undrain, in microseconds
--          since the Unix epoch: a later drain is kept
-- Reply    the number of drains that found no room

local drains = KEYS[1]
local max = tonumber(ARGV[4])
remove_other_type(drains, 'hash')
local now = tonumber(redis.call('TIME')[1])
local is_changed, refused, count = false, 0, 0

-- When the endpoint was undrained, by its stored value.
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
    -- An operator has drained the endpoint since then.
  elseif action == 'undrain' then
    -- Noted, so that no instance takes the missing drain for lost, even if Redis has lost it meanwhile.
    redis.call('HSET', drains, endpoint, 'undrained ' .. string.format('%.0f', now))
    is_changed, count = true, count - (is_drained and 1 or 0)
  elseif stored and action == 'restore' then
    -- Later changes by other instances are kept.
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
  -- An instance that misses it notices by the version.
  redis.pcall('PUBLISH', ARGV[1], ARGV[2])
end
return refused
