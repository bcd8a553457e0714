-- sliding_window: a ring of buckets per tier, with a running total. It never admits more than the limit in any window: the
-- total spans the bucket of now and the `buckets` before it, which is more than a window.
--
-- state   a string, most significant bytes first. First, for each tier: the number of the newest bucket (a double), the
--         units in the ring, and how many buckets the oldest bucket with units lies before the newest (four bytes each:
--         struct's '>dI4I4'). Then the ring of each tier: the counts of its buckets, four bytes each, bucket i at i modulo
--         the ring's length. Counts of buckets before the oldest are meaningless.
-- policy  limit and window of each tier; the number of buckets in a window
-- reply   for each tier: units used, time until the oldest bucket leaves (the bucket of now if there is none), time until
--         the request fits
--
-- Bucket k * buckets + j begins k windows and j / buckets of a window after the Unix epoch, rounded up to the microsecond.
--
-- In memory a list, since its access is faster than a field's: the string, if it is valid; the changed counts by their
-- offsets in it, false if there are none; and for each tier, from 3 on, EACH fields:
local TOTAL, OLDEST, AT, STORED, ADDED, RING, EACH = 0, 1, 2, 3, 4, 5, 6
-- TOTAL   units used
-- OLDEST  the number of the oldest bucket with units
-- AT      the number of the bucket of now
-- STORED  the number of the newest bucket in the string, false if none of them counts
-- ADDED   units added to the bucket of now
-- RING    the offset of the tier's ring in the string

-- Bytes per tier before the rings.
local HEAD = 16

local sub, concat = string.sub, table.concat

local function bucket_of(time, window, buckets)
  local rest = time % window
  local part = rest * buckets
  return (time - rest) / window * buckets + (part - part % window) / window
end

local function bucket_start(bucket, window, buckets)
  local rest = bucket % buckets
  local part = rest * window + buckets - 1
  return (bucket - rest) / buckets * window + (part - part % buckets) / buckets
end

-- The units of a stored bucket.
local function stored_units(state, tier, bucket, slots)
  local place = state[tier + RING] + bucket % slots * 4
  local changes = state[2]
  return changes and changes[place] or (unpack_from('>I4', state[1], place + 1))
end

-- The units of a bucket from the oldest to that of now.
local function units_of(state, tier, bucket, slots)
  local newest = state[tier + STORED]
  local units = newest and bucket <= newest and stored_units(state, tier, bucket, slots) or 0
  return bucket == state[tier + AT] and units + state[tier + ADDED] or units
end

-- The oldest bucket with units, from `bucket` on; the bucket of now if there is none.
local function next_nonempty(state, tier, bucket, slots)
  local newest = state[tier + STORED]
  for i = bucket, newest or bucket - 1 do
    if units_of(state, tier, i, slots) > 0 then return i end
  end
  return state[tier + AT]
end

-- The bucket with which `excess` units have left.
local function last_to_leave(state, tier, excess, slots)
  local at, newest = state[tier + AT], state[tier + STORED]
  for i = state[tier + OLDEST], newest or at - 1 do
    excess = excess - units_of(state, tier, i, slots)
    if excess <= 0 then return i end
  end
  return at
end

-- Removes `excess` units, the oldest first.
local function drop_oldest(state, tier, excess, slots)
  local at = state[tier + AT]
  state[tier + TOTAL] = state[tier + TOTAL] - excess
  while excess > 0 do
    local oldest = state[tier + OLDEST]
    if oldest >= at then
      state[tier + ADDED] = state[tier + ADDED] - excess
      return
    end
    local units = stored_units(state, tier, oldest, slots)
    if units > excess then
      state[2] = state[2] or {}
      state[2][state[tier + RING] + oldest % slots * 4] = units - excess
      return
    end
    excess = excess - units
    state[tier + OLDEST] = next_nonempty(state, tier, oldest + 1, slots)
  end
end

-- Caches in `policy` what is the same for all its limits in a batch: the formats, and for each tier the bucket of now and
-- the time until a bucket leaves, by bucket.
local function prepare(policy, now)
  local n = #policy
  local tiers, slots = (n - 1) / 2, policy[n] + 1
  policy.heads = '>' .. string.rep('dI4I4', tiers)
  policy.ring = '>' .. string.rep('I4', slots)
  policy.zeros = string.rep('\0', 4 * slots)
  policy.length = tiers * (HEAD + 4 * slots)
  local ats, leaves = {}, {}
  for i = 2, n, 2 do
    local window = policy[i]
    ats[i] = bucket_of(now, window, policy[n])
    leaves[i] = setmetatable({}, { __index = function(known, bucket)
      local left = bucket_start(bucket + slots, window, policy[n]) - now
      known[bucket] = left
      return left
    end })
  end
  policy.ats, policy.leaves = ats, leaves
end

-- The ring of a tier as it is to be written, if more than one of its counts has changed.
local function rewritten_ring(state, tier, policy, slots)
  local at, newest, base = state[tier + AT], state[tier + STORED], state[tier + RING]
  local counts = { unpack_from(policy.ring, state[1], base + 1) }
  for i = newest + 1, at do counts[i % slots + 1] = 0 end
  for place, units in pairs(state[2] or {}) do
    local slot = (place - base) / 4
    if slot >= 0 and slot < slots then counts[slot + 1] = units end
  end
  local slot = at % slots + 1
  counts[slot] = counts[slot] + state[tier + ADDED]
  return pack(policy.ring, unpack(counts, 1, slots))
end

algorithms[5] = {
  width = 1,
  load = function(value, policy, now)
    local n = #policy
    if not policy.ats then prepare(policy, now) end
    local buckets, ats = policy[n], policy.ats
    local ours = value and #value == policy.length
    local state, heads = { ours and value, false }, ours and { unpack_from(policy.heads, value) }
    local tier, head, ring = 3, 1, (n - 1) / 2 * HEAD
    for i = 2, n, 2 do
      local at = ats[i]
      local total, oldest, newest = 0, at, false
      if ours then
        newest, total = heads[head], heads[head + 1]
        oldest = newest - heads[head + 2]
        if total == 0 or newest < at - buckets then
          newest = false
        elseif not (newest <= at) then
          if bucket_start(newest, policy[i], buckets) - now <= policy[i] then
            at = newest
          else
            newest, discarded = false, discarded + 1
          end
        end
        if not newest then total, oldest = 0, at end
      end
      state[tier], state[tier + 1], state[tier + 2], state[tier + 3], state[tier + 4], state[tier + 5] =
        total, oldest, at, newest, 0, ring
      local first = at - buckets
      if oldest < first then
        local slots = buckets + 1
        for bucket = oldest < newest - buckets and newest - buckets or oldest, first - 1 do
          total = total - stored_units(state, tier, bucket, slots)
        end
        oldest = next_nonempty(state, tier, first, slots)
        if total <= 0 then total, oldest, state[tier + STORED] = 0, at, false end
        state[tier], state[tier + OLDEST] = total, oldest
      end
      tier, head, ring = tier + EACH, head + 3, ring + 4 * buckets + 4
    end
    return state
  end,
  read = function(state, policy, now, cost, reply, n)
    if not policy.ats then prepare(policy, now) end
    local tier, admits, all = 3, true, policy.leaves
    for i = 2, #policy, 2 do
      local used, limit, leaves = state[tier], policy[i - 1], all[i]
      local returns = leaves[state[tier + OLDEST]]
      reply[n + 1], reply[n + 2], reply[n + 3] = used, returns, returns
      if used + cost > limit then
        admits = false
        if cost <= limit then
          reply[n + 3] = leaves[last_to_leave(state, tier, used + cost - limit, policy[#policy] + 1)]
        end
      end
      tier, n = tier + EACH, n + 3
    end
    return n, admits
  end,
  take = function(state, policy, cost)
    for tier = 3, 3 * #policy - 1, EACH do
      state[tier], state[tier + ADDED] = state[tier] + cost, state[tier + ADDED] + cost
    end
  end,
  count_denied = function(state, policy, cost)
    local n = #policy
    for i = 1, n - 1, 2 do
      if cost > policy[i] then return false end
    end
    local tier = 3
    for i = 1, n - 1, 2 do
      local total = state[tier] + cost
      state[tier], state[tier + ADDED] = total, state[tier + ADDED] + cost
      if total > policy[i] then drop_oldest(state, tier, total - policy[i], policy[n] + 1) end
      tier = tier + EACH
    end
    return true
  end,
  refund = function(state, policy, cost, at)
    local n, tier, refunded = #policy, 3, false
    local buckets = policy[n]
    local slots = buckets + 1
    for i = 2, n, 2 do
      local bucket, total = bucket_of(at, policy[i], buckets), state[tier]
      if total > 0 and bucket >= state[tier + OLDEST] and bucket <= state[tier + AT] then
        local units = units_of(state, tier, bucket, slots)
        local less = units < cost and units or cost
        if less > 0 then
          refunded = true
          if bucket == state[tier + AT] then
            state[tier + ADDED] = state[tier + ADDED] - less
          else
            state[2] = state[2] or {}
            state[2][state[tier + RING] + bucket % slots * 4] = units - less
          end
          state[tier] = total - less
          if total == less then
            state[tier + OLDEST], state[tier + STORED], state[tier + ADDED] = state[tier + AT], false, 0
          elseif units == less and bucket == state[tier + OLDEST] then
            state[tier + OLDEST] = next_nonempty(state, tier, bucket + 1, slots)
          end
        end
      end
      tier = tier + EACH
    end
    return refunded
  end,
  -- The string is overwritten in place and keeps its expiry as long as the longest window stays in its bucket: the expiry was
  -- set to cover everything that is counted in that bucket.
  save = function(key, state, policy, now)
    -- Another policy of the same shape may have loaded the state.
    if not policy.ats then prepare(policy, now) end
    local n, value, tier, head, from = #policy, state[1], 3, 0, (#policy - 1) / 2 * HEAD + 1
    local slots, zeros, heads, parts, count = policy[n] + 1, policy.zeros, {}, { '' }, 1
    for _ = 2, n, 2 do
      local at, newest, ring = state[tier + AT], state[tier + STORED], state[tier + RING]
      heads[head + 1], heads[head + 2], heads[head + 3] = at, state[tier], at - state[tier + OLDEST]
      local slot, units, passed = at % slots, state[tier + ADDED], newest and at - newest - 1
      local place = ring + slot * 4
      if newest and not state[2] and passed <= slot then
        -- The buckets that were skipped are empty, and stand before that of now.
        if passed > 0 then
          parts[count + 1], parts[count + 2] = sub(value, from, place - 4 * passed), sub(zeros, 1, 4 * passed)
          count = count + 2
        else
          if passed < 0 then units = units + unpack_from('>I4', value, place + 1) end
          parts[count + 1] = sub(value, from, place)
          count = count + 1
        end
        parts[count + 1] = pack('>I4', units)
        count, from = count + 1, place + 5
      else
        if from <= ring then
          parts[count + 1] = sub(value or '', from, ring)
          count = count + 1
        end
        if not newest then
          parts[count + 1], parts[count + 2], parts[count + 3] =
            sub(zeros, 1, place - ring), pack('>I4', units), sub(zeros, place - ring + 5)
          count = count + 3
        elseif state[2] then
          parts[count + 1] = rewritten_ring(state, tier, policy, slots)
          count = count + 1
        else
          -- The skipped buckets begin at the end of the ring.
          local tail = 4 * (passed - slot)
          parts[count + 1], parts[count + 2] = sub(zeros, 1, 4 * slot), pack('>I4', units)
          parts[count + 3], parts[count + 4] = sub(value, place + 5, ring + 4 * slots - tail), sub(zeros, 1, tail)
          count = count + 4
        end
        from = ring + 4 * slots + 1
      end
      tier, head = tier + EACH, head + 3
    end
    parts[1] = pack(policy.heads, unpack(heads))
    if from <= policy.length then
      count = count + 1
      parts[count] = sub(value, from)
    end
    local written, last = concat(parts), tier - EACH
    if state[last + STORED] == state[last + AT] and state[last] % 16 ~= 0 then
      call('SETRANGE', key, '0', written)
    else
      local window, buckets = policy[n - 1], policy[n]
      call('SET', key, written, 'PX', lifetime_text(bucket_start(state[last + AT], window, buckets) + window - now
        + 2 * bucket_start(1, window, buckets)))
    end
  end,
}
