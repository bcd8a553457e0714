-- Stores when API keys were last used. It follows key_prelude.lua.
--
-- KEYS[1]  the last uses: see api_keys_write.lua
-- ARGV[1]  most entries: of more, those used first are removed
-- ARGV[2…] for each: the ID, and the minute of its use

local uses = KEYS[1]
remove_other_type(uses, 'zset')
for base = 2, #ARGV - 1, 2 do
  local id, minute = ARGV[base], tonumber(ARGV[base + 1])
  if (tonumber(redis.call('ZSCORE', uses, id) or 0) or 0) < minute then
    redis.call('ZADD', uses, string.format('%.0f', minute), id)
  end
end
redis.call('ZREMRANGEBYRANK', uses, 0, -tonumber(ARGV[1]) - 1)
