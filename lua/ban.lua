-- Gives bans, merges those that an instance gave by itself, and lifts them.
--
-- KEYS     see bans_prelude.lua
-- ARGV[1]  the channel where changes are told; ARGV[2] the epoch to begin if there is none; ARGV[3] bans and ladders at most
-- ARGV[4…] for each: `give`, `merge` or `lift`; the key; `e` or `s`; how many microseconds it lasts from now; how many ago
--          it began; the level, 0 by hand; the rule's name; and JSON that is told of the ban. Of `lift` only the key counts
-- Reply    the changes, each as it was told; and of how many bans there was no room

local WIDTH = 8
local channel, fresh, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local refused = 0

-- One that ends later stays.
local function merge(key, ban, lasts, since, level, rule, json)
  local known = tonumber(redis.call('ZSCORE', ends, ban) or 0) or 0
  if known >= now + lasts then
    return
  end
  if not give(channel, fresh, ban, lasts, since, level, json, most, false) then
    refused = refused + 1
    return
  end
  if level > 0 then
    local rules, length = ladder_of(key), now + lasts - since
    rules[rule] = {level, length, now + lasts, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
    save_ladder(key, rules, now + lasts + math.min(level * length, LONGEST), most)
  end
end

for base = 4, #ARGV - WIDTH + 1, WIDTH do
  local what, key, mode = ARGV[base], ARGV[base + 1], ARGV[base + 2]
  local lasts, ago, level = tonumber(ARGV[base + 3]), tonumber(ARGV[base + 4]), tonumber(ARGV[base + 5])
  local rule, json, ban = ARGV[base + 6], ARGV[base + 7], mode .. ' ' .. key
  if what == 'lift' then
    redis.call('HDEL', ladders, key)
    redis.call('ZREM', expiries, key)
    local enforced, shadow = drop('e ' .. key), drop('s ' .. key)
    if enforced or shadow then
      tell(channel, fresh, 'lifted', key)
    end
  elseif lasts > 0 then
    if what == 'give' then
      give(channel, fresh, ban, lasts, now - ago, level, json, most, true)
    else
      merge(key, ban, lasts, now - ago, level, rule, json)
    end
  end
end
return {changes, refused}
