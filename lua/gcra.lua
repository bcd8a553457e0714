-- gcra: a bucket of `burst` units that drains at a steady rate: limit per window.
--
-- state   a string: the time (microseconds since the Unix epoch) and the bucket's level at that time, as whole units
--         and parts (a unit has as many parts as the window has microseconds); doubles of eight bytes, most significant
--         first (struct's '>ddd').
-- policy  limit, window, burst, the longest delay of a request, the level that drains in that time (units, parts), and
--         the lowest limit among the policies that share the bucket
-- reply   whole units, parts, time until the bucket begins to drain (0, unless its state is ahead)
--
-- In memory: as in Redis, drained until now, or as written if its time is ahead. Until it is changed also DRAINED_BY,
-- the policy by whose rate it was drained, VALUE, the string, and NOW: an override has another rate, and must drain the
-- stored level by its own.
local DRAINED_BY, VALUE, NOW = 4, 5, 6

-- The limit of a valid level in units, and of a key's lifetime in microseconds.
local MAX = 2 ^ 52

-- The time and the level of a stored bucket, drained until now.
local function drained(value, policy, now)
  local at, whole, part = unpack_from('>ddd', value)
  local passed = now - at
  if passed <= 0 then return at, whole, part end
  local window = policy[2]
  local units, parts = mul_div(passed, policy[1], window)
  whole, part = whole - units, part - parts
  if part < 0 then whole, part = whole - 1, part + window end
  if not (whole >= 0) then return now, 0, 0 end
  return now, whole, part
end

-- Drains an unchanged state again by this policy's rate, if it was drained by another's.
local function drain_for(state, policy)
  if state[DRAINED_BY] and state[DRAINED_BY] ~= policy then
    state[1], state[2], state[3] = drained(state[VALUE], policy, state[NOW])
    state[DRAINED_BY] = policy
  end
end

algorithms[7] = {
  width = 1,
  load = function(value, policy, now)
    if not value or #value ~= 24 then
      spoilt = value and true
      return { now, 0, 0, false }
    end
    local at, whole, part = unpack_from('>ddd', value)
    local window = policy[2]
    local is_level = whole >= 0 and whole < MAX and part >= 0 and part < window and at == at
    if not is_level or whole + part == 0 then
      spoilt = not is_level
      return { now, 0, 0, false }
    end
    if now - at < -window then
      discarded = discarded + 1
      return { now, 0, 0, false }
    end
    at, whole, part = drained(value, policy, now)
    return { at, whole, part, policy, value, now }
  end,
  read = function(state, policy, now, cost, reply, n)
    if state[DRAINED_BY] ~= policy then drain_for(state, policy) end
    local at, whole, part, burst = state[1], state[2], state[3], policy[3]
    local ahead, excess = at - now, whole + cost - burst
    reply[n + 1], reply[n + 2], reply[n + 3] = whole, part, ahead
    local admits = excess < 0 or excess == 0 and part == 0
    local max_delay = policy[4]
    if not admits and max_delay > ahead and cost <= burst then
      local units, parts = policy[5], policy[6]
      -- The delay includes the time until the state's own time.
      if ahead > 0 then units, parts = mul_div(max_delay - ahead, policy[1], policy[2]) end
      admits = excess < units or excess == units and part <= parts
    end
    return n + 3, admits
  end,
  take = function(state, _, cost)
    state[2], state[DRAINED_BY] = state[2] + cost, false
  end,
  charge = function(state, policy, cost)
    drain_for(state, policy)
    state[2], state[DRAINED_BY] = state[2] + (cost < policy[1] and cost or policy[1]), false
  end,
  count_denied = function(state, policy, cost)
    local whole, burst = state[2], policy[3]
    if cost > burst then return false end
    state[DRAINED_BY] = false
    if whole < burst then
      if whole + cost < burst then state[2] = whole + cost else state[2], state[3] = burst, 0 end
    end
    return true
  end,
  -- Units that may have drained since are not refunded: that would also free units that later requests took.
  refund = function(state, policy, cost, taken)
    drain_for(state, policy)
    local whole, part, passed = state[2], state[3], state[1] - taken
    if whole + part == 0 then return false end
    local units, parts = 0, 0
    if passed > 0 then units, parts = mul_div(passed, policy[1], policy[2]) end
    if units >= cost then return false end
    whole, part = whole - (cost - units), part + parts
    if part >= policy[2] then whole, part = whole + 1, part - policy[2] end
    if whole < 0 then whole, part = 0, 0 end
    state[2], state[3], state[DRAINED_BY] = whole, part, false
    return true
  end,
  save = function(key, state, policy, now)
    local at, whole, part = state[1], state[2], state[3]
    local left = at - now + (whole * policy[2] + part) / policy[7]
    call('SET', key, pack('>ddd', at, whole, part), 'PX', lifetime_text(left < MAX and left or MAX))
  end,
}
