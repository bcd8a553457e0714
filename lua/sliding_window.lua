-- sliding_window: a ring of buckets per tier, with a running total. It never admits more than the limit in any window:
-- the total spans the bucket of now and the `buckets` before it, which is more than a window.
--
-- state   a string, most significant bytes first. First, for each tier: the number of the newest bucket (a double), the
--         units in the ring, and the distance from the newest bucket back to the oldest with units (four bytes each:
--         struct's '>dI4I4'). Then the ring of each tier: the counts of its buckets, four bytes each, bucket i at i
--         modulo the ring's length. Counts of buckets before the oldest are meaningless.
-- policy  limit and window of each tier; the number of buckets in a window
-- reply   for each tier: units used, time until the oldest bucket leaves (the bucket of now if there is none), time
--         until the request fits; if it fits, time until the newest bucket begins (0, unless the state is ahead)
--
-- Bucket k * buckets + j begins k windows and j / buckets of a window after the Unix epoch, rounded up to the
-- microsecond.
--
-- In memory: as in Redis, with the bucket of now as the newest; then the number of the last tier's newest bucket in
-- Redis, false if none of its units count. Tier t has three numbers, from 3 * t - 2 on:
local NEWEST, TOTAL, AGE = 0, 1, 2
-- NEWEST  the number of the bucket of now, or of a later one if the state is ahead
-- TOTAL   units used
-- AGE     the distance from it back to the oldest bucket with units

local function bucket_of(time, window, buckets)
  local rest = time % window
  local part = rest * buckets
  return (time - rest) / window * buckets + (part - part % window) / window
end

local function bucket_start(bucket, window, buckets)
  if window % buckets == 0 then return bucket * (window / buckets) end
  local rest = bucket % buckets
  local part = rest * window + buckets - 1
  return (bucket - rest) / buckets * window + (part - part % buckets) / buckets
end

-- Caches in `policy` the values shared by all its limits in a batch: the format of the state, its length, and the
-- bucket of now in each tier.
local function prepare(policy, now)
  local n = #policy
  local tiers, buckets = (n - 1) / 2, policy[n]
  policy.layout = '>' .. string.rep('dI4I4', tiers) .. string.rep('I4', tiers * (buckets + 1))
  policy.length = tiers * (16 + 4 * (buckets + 1))
  local current = {}
  for i = 2, n, 2 do current[i] = bucket_of(now, policy[i], buckets) end
  policy.current = current
end

-- A state without units.
local function zeros_of(policy)
  policy.zeros = policy.zeros or string.rep('\0', policy.length)
  return policy.zeros
end

-- The place of a tier's ring in the state. Bucket i is at `ring + i % slots`.
local function ring_of(policy, i)
  local n = #policy
  return 3 * (n - 1) / 2 + 1 + (i / 2 - 1) * (policy[n] + 1)
end

-- Sets the distance to the oldest bucket with units, if there are none before `bucket`.
local function find_oldest(state, tier, ring, bucket, slots)
  local newest = state[tier + NEWEST]
  while bucket < newest and state[ring + bucket % slots] == 0 do bucket = bucket + 1 end
  state[tier + AGE] = newest - bucket
end

-- Removes all units of a tier.
local function clear(state, tier, ring, slots)
  state[tier + TOTAL], state[tier + AGE] = 0, 0
  for place = ring, ring + slots - 1 do state[place] = 0 end
end

-- Removes `excess` units, the oldest first.
local function drop_oldest(state, tier, ring, excess, slots)
  state[tier + TOTAL] = state[tier + TOTAL] - excess
  while true do
    local oldest = state[tier + NEWEST] - state[tier + AGE]
    local place = ring + oldest % slots
    local units = state[place]
    if units > excess or state[tier + AGE] == 0 then
      state[place] = units - excess
      return
    end
    excess = excess - units
    find_oldest(state, tier, ring, oldest + 1, slots)
    if excess == 0 then return end
  end
end

algorithms[5] = {
  width = 1,
  load = function(value, policy, now)
    if not policy.layout then prepare(policy, now) end
    local n = #policy
    local buckets, slots = policy[n], policy[n] + 1
    local is_ours = value and #value == policy.length
    spoilt = value and not is_ours
    local state = { unpack_from(policy.layout, is_ours and value or zeros_of(policy)) }
    local tier, ring, counts = 1, 3 * (n - 1) / 2 + 1, false
    for i = 2, n, 2 do
      local stored, total, current = state[tier], state[tier + 1], policy.current[i]
      -- Not a number and the infinities have no remainder.
      if stored % 1 ~= 0 then stored, total, spoilt = 0, 0, true end
      local oldest, newest = stored - state[tier + 2], current
      counts = total ~= 0 and not (stored < current - buckets)
      if counts and not (stored <= current) then
        if bucket_start(stored, policy[i], buckets) - now <= policy[i] then
          newest = stored
        else
          counts, discarded = false, discarded + 1
        end
      end
      state[tier] = newest
      if counts and newest ~= stored then
        -- The buckets since then are empty. They reuse the places of those that have left.
        for bucket = stored + 1, newest do
          local place = ring + bucket % slots
          if bucket - slots >= oldest then total = total - state[place] end
          state[place] = 0
        end
        state[tier + 1], state[tier + 2], counts = total, newest - oldest, total > 0
      end
      if counts and oldest < newest - buckets then find_oldest(state, tier, ring, newest - buckets, slots) end
      if not counts and is_ours then clear(state, tier, ring, slots) end
      counts = counts and stored
      tier, ring = tier + 3, ring + slots
    end
    state[#state + 1] = counts
    return state
  end,
  read = function(state, policy, now, cost, reply, n)
    local length, tier, admits = #policy, 1, true
    local slots = policy[length] + 1
    -- Another policy of the same shape may have loaded the state.
    if not policy.layout then prepare(policy, now) end
    for i = 2, length, 2 do
      local newest, used, limit, window = state[tier], state[tier + 1], policy[i - 1], policy[i]
      -- Another bucket takes its place when the oldest leaves.
      local oldest = newest - state[tier + 2]
      local returns = bucket_start(oldest + slots, window, slots - 1) - now
      reply[n + 1], reply[n + 2], reply[n + 3] = used, returns, 0
      local excess = used + cost - limit
      if excess <= 0 then
        if newest ~= policy.current[i] then reply[n + 3] = bucket_start(newest, window, slots - 1) - now end
      else
        admits, reply[n + 3] = false, returns
        if cost <= limit then
          local ring, last = ring_of(policy, i), oldest
          excess = excess - state[ring + last % slots]
          while excess > 0 and last < newest do
            last = last + 1
            excess = excess - state[ring + last % slots]
          end
          reply[n + 3] = bucket_start(last + slots, window, slots - 1) - now
        end
      end
      tier, n = tier + 3, n + 3
    end
    return n, admits
  end,
  take = function(state, policy, cost)
    local n, tier = #policy, 1
    local slots, ring = policy[n] + 1, 3 * (n - 1) / 2 + 1
    for _ = 2, n, 2 do
      local place = ring + state[tier] % slots
      state[tier + 1], state[place] = state[tier + 1] + cost, state[place] + cost
      tier, ring = tier + 3, ring + slots
    end
  end,
  charge = function(state, policy, cost)
    local n, tier = #policy, 1
    local slots, ring = policy[n] + 1, 3 * (n - 1) / 2 + 1
    for i = 2, n, 2 do
      local place, total = ring + state[tier] % slots, state[tier + TOTAL]
      local units = cost < policy[i - 1] and cost or policy[i - 1]
      -- A count has four bytes.
      if units > 2 ^ 32 - 1 - total then units = 2 ^ 32 - 1 - total end
      state[tier + TOTAL], state[place] = total + units, state[place] + units
      tier, ring = tier + 3, ring + slots
    end
  end,
  count_denied = function(state, policy, cost)
    local n, tier = #policy, 1
    for i = 1, n - 1, 2 do
      if cost > policy[i] then return false end
    end
    local slots = policy[n] + 1
    for i = 2, n, 2 do
      local ring, total = ring_of(policy, i), state[tier + TOTAL] + cost
      local place = ring + state[tier + NEWEST] % slots
      state[tier + TOTAL], state[place] = total, state[place] + cost
      if total > policy[i - 1] then drop_oldest(state, tier, ring, total - policy[i - 1], slots) end
      tier = tier + 3
    end
    return true
  end,
  refund = function(state, policy, cost, at)
    local n, tier, refunded = #policy, 1, false
    local buckets = policy[n]
    local slots = buckets + 1
    for i = 2, n, 2 do
      local ring, bucket, total = ring_of(policy, i), bucket_of(at, policy[i], buckets), state[tier + TOTAL]
      local oldest = state[tier + NEWEST] - state[tier + AGE]
      if total > 0 and bucket >= oldest and bucket <= state[tier + NEWEST] then
        local place = ring + bucket % slots
        local units = state[place]
        local less = units < cost and units or cost
        if less > 0 then
          refunded = true
          state[place], state[tier + TOTAL] = units - less, total - less
          if total <= less then
            clear(state, tier, ring, slots)
            if i == n - 1 then state[#state] = false end
          elseif units == less and bucket == oldest then
            find_oldest(state, tier, ring, bucket + 1, slots)
          end
        end
      end
      tier = tier + 3
    end
    return refunded
  end,
  -- The string is overwritten in place and keeps its expiry as long as the longest window is in its bucket: the expiry
  -- was set to cover everything that is counted in that bucket.
  save = function(key, state, policy, now)
    if not policy.layout then prepare(policy, now) end
    local n, last = #policy, #state
    local newest, total = state[3 * (n - 1) / 2 - 2], state[3 * (n - 1) / 2 - 1]
    local value = pack(policy.layout, unpack(state, 1, last - 1))
    if state[last] == newest and total % 16 ~= 0 then
      call('SETRANGE', key, '0', value)
    else
      local window, buckets = policy[n - 1], policy[n]
      call('SET', key, value, 'PX', lifetime_text(bucket_start(newest, window, buckets) + window - now
        + 2 * bucket_start(1, window, buckets)))
    end
  end,
}
