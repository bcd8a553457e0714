-- Counts denied requests by key, and bans a key that has too many: once, no matter how many instances count.
--
-- KEYS     see bans_prelude.lua, which precedes it
-- ARGV[1]  the channel for changes; ARGV[2] the epoch to begin if there is none; ARGV[3] most bans of each class, and
--          most addresses, and most users, with ladders
-- ARGV[4…] for each rule and key: the rule's name; the key; the denials; microseconds since the first and since the
--          last of them; of the rule: the limit, the window, the length of the first ban, the factor, the longest
--          length; the jitter to multiply this ban by, in millionths; `e` or `s`; and the JSON of the ban
-- Reply    the changes as published; the number of bans that found no room; and the change of each ban issued by this
--          call
--
-- Counts and lengths of bans are as in src/abuse/bans/window.rs and ladder.rs.

local WIDTH = 13
local channel, new_epoch, max_bans = ARGV[1], ARGV[2], tonumber(ARGV[3])
local refused, given = 0, {}

-- Adds denials to a ladder. Returns the number of denials in the window that ends with the last of all.
local function count(ladder, first, last, denials, window)
  local width = math.floor((window + BUCKETS - 1) / BUCKETS)
  -- The clock was set back; or the window was shorter, and its buckets had other numbers.
  if ladder[4] > now + window or ladder[5] > math.floor((now + window) / width) then
    ladder[4], ladder[5] = 0, 0
    for at = 6, 5 + BUCKETS do ladder[at] = 0 end
  end
  local bucket = math.floor(first / width)
  for passed = math.max(ladder[5] + 1, bucket - BUCKETS + 1), bucket do
    ladder[6 + passed % BUCKETS] = 0
  end
  ladder[5] = math.max(ladder[5], bucket)
  if bucket > ladder[5] - BUCKETS then
    local at = 6 + bucket % BUCKETS
    ladder[at] = math.min(ladder[at] + denials, 9007199254740991)
  end
  ladder[4] = math.max(ladder[4], last)
  local sum = 0
  for inside = ladder[5] - BUCKETS + 1, ladder[5] do
    if inside * width > ladder[4] - window then
      sum = sum + ladder[6 + inside % BUCKETS]
    end
  end
  return sum
end

for base = 4, #ARGV - WIDTH + 1, WIDTH do
  local function number(at) return tonumber(ARGV[base + at]) end
  local rule, key, denials = ARGV[base], ARGV[base + 1], number(2)
  local first, last = now - number(3), now - number(4)
  local limit, window, lasts, factor, longest, jitter = number(5), number(6), number(7), number(8), number(9), number(10)
  local mode, json = ARGV[base + 11], ARGV[base + 12]
  local rules = read_ladders(key)
  local ladder = valid_or_empty(rules[rule])
  if ladder[3] - now > math.min(ladder[2], LONGEST) then
    -- The clock was set back, or another program wrote this.
    ladder = valid_or_empty(nil)
  end
  if first >= ladder[3] then
    if count(ladder, first, last, denials, window) >= limit then
      local level = decayed_level(ladder, now)
      local length = math.floor(math.max(math.min(lasts * factor ^ level * jitter / 1000000, longest), 1))
      level = math.min(level + 1, 1000000)
      ladder = valid_or_empty(nil)
      ladder[1], ladder[2], ladder[3] = level, length, now + length
      local ban = mode .. ' ' .. key
      -- A ban by another rule may end later, and a manual one has precedence, as an operator's decision.
      local known = time_in(bans, ban)
      if known < now + length and not is_manual(ban) then
        if put_ban(channel, new_epoch, ban, length, now, level, json, max_bans) then
          given[#given + 1] = changes[#changes]
        else
          refused = refused + 1
        end
      end
    end
    rules[rule] = ladder
    local decayed = math.min(ladder[1] * ladder[2], LONGEST)
    store_ladders(key, rules, math.max(ladder[4] + window, ladder[3] + decayed), max_bans)
  end
end
return {changes, refused, given}
