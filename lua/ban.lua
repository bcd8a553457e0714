-- Stores manual bans, merges bans that one instance issued alone, and lifts bans.
--
-- KEYS     see bans_prelude.lua, which precedes it
-- ARGV[1]  the channel for changes; ARGV[2] the epoch to begin if there is none; ARGV[3] most bans of each class, and
--          most addresses, and most users, with ladders
-- ARGV[4…] for each: `give`, `merge`, `lift` or `forget`; the key; `e` or `s`; microseconds until it ends; microseconds
--          since it began; the level, 0 if manual; the rule's name; and the JSON of the ban. For `lift`: the key, and
--          microseconds since the bans were lifted: those that began later are kept. `forget` is a lift that is not
--          recorded, and published as `forgotten`
-- Reply    the changes as published; and the number of bans that found no room

local WIDTH = 8
local channel, new_epoch, max_bans = ARGV[1], ARGV[2], tonumber(ARGV[3])
local refused = 0

-- When a ban began; 0 if there is none.
local function began(ban)
  local time = tonumber(string.match(redis.call('HGET', details, ban) or '', '^(%d+) ') or '')
  return time and time <= 9007199254740992 and time or 0
end

-- Stores a ban, unless there is one that ends later, or the same ban by another clock; or there is a manual one, and
-- this is not; or it was lifted since it began. Of two manual ones the one that began later wins: it is the operators'
-- latest decision.
local function merge(key, ban, lasts, since, level, rule, json)
  if since <= time_in(lifts, key) then
    if not redis.call('ZSCORE', bans, ban) then
      -- The instance that sent the ban still has it.
      publish_change(channel, new_epoch, 'lifted', key)
    end
    return
  end
  local known, ends = time_in(bans, ban), now + lasts
  local holds = known + 1000000 >= ends
  if is_manual(ban) then
    holds = level > 0 or began(ban) >= since or math.abs(known - ends) <= 1000000
  end
  if holds then
    return
  end
  if not put_ban(channel, new_epoch, ban, lasts, since, level, json, max_bans) then
    refused = refused + 1
    return
  end
  if level > 0 then
    local rules, length = read_ladders(key), now + lasts - since
    local ladder = valid_or_empty(rules[rule])
    -- The instance may not have known the previous bans: that must not lower the level.
    local before = decayed_level(ladder, since)
    if before >= level then
      level, length = math.min(before + 1, 1000000), math.max(length, ladder[2])
    end
    rules[rule] = {level, length, now + lasts, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
    store_ladders(key, rules, now + lasts + math.min(level * length, LONGEST), max_bans)
  end
end

-- Lifts a ban, unless it began after this time. Returns whether it was removed.
local function lift(ban, lifted_at)
  return began(ban) <= lifted_at and remove_ban(ban)
end

local function remember_lift(key, lifted_at)
  local known = time_in(lifts, key)
  redis.call('ZADD', lifts, whole(math.max(known, lifted_at)), key)
  redis.call('ZREMRANGEBYSCORE', lifts, '-inf', whole(now - 86400000000))
  redis.call('ZREMRANGEBYRANK', lifts, 0, -max_bans - 1)
  redis.call('PEXPIRE', lifts, 86400000)
end

for base = 4, #ARGV - WIDTH + 1, WIDTH do
  local action, key, mode = ARGV[base], ARGV[base + 1], ARGV[base + 2]
  local lasts, ago, level = tonumber(ARGV[base + 3]), tonumber(ARGV[base + 4]), tonumber(ARGV[base + 5])
  local rule, json, ban = ARGV[base + 6], ARGV[base + 7], mode .. ' ' .. key
  if action == 'lift' or action == 'forget' then
    local enforced, shadow = lift('e ' .. key, now - ago), lift('s ' .. key, now - ago)
    -- A lift that an instance sends again keeps the counts since then.
    local is_known = time_in(lifts, key) + 1000000 >= now - ago
    if action == 'lift' then
      remember_lift(key, now - ago)
    end
    local is_banned = redis.call('ZSCORE', bans, 'e ' .. key) or redis.call('ZSCORE', bans, 's ' .. key)
    if not is_banned and (enforced or shadow or not is_known) then
      remove_ladders(key)
    end
    if enforced or shadow then
      publish_change(channel, new_epoch, action == 'lift' and 'lifted' or 'forgotten', key)
    end
  elseif lasts > 0 then
    if action == 'give' then
      put_ban(channel, new_epoch, ban, lasts, now - ago, level, json, max_bans)
    else
      merge(key, ban, lasts, now - ago, level, rule, json)
    end
  end
end
return {changes, refused}
