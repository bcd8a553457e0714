-- Stores when API keys were last used. It follows key_prelude.lua.
--
-- KEYS[1]  the last uses: see api_keys_write.lua
-- ARGV[1]  most entries: of more, those used first are removed
-- ARGV[2…] for each: the ID, and the minute of its use: at most the present one, else an instance whose clock is ahead
--          would hide the uses at others, which are read from the newest minute on

local uses = KEYS[1]
local this_minute = math.floor(redis.call('TIME')[1] / 60)
remove_other_type(uses, 'zset')
for base = 2, #ARGV - 1, 2 do
  local id, minute = ARGV[base], math.min(tonumber(ARGV[base + 1]), this_minute)
  local known = tonumber(redis.call('ZSCORE', uses, id) or '') or 0
  -- No instance writes a later minute than this one.
  if known < minute or known > this_minute then
    redis.call('ZADD', uses, string.format('%.0f', minute), id)
  end
end
redis.call('ZREMRANGEBYRANK', uses, 0, -tonumber(ARGV[1]) - 1)
