-- gcra: a bucket of `burst` units that drains at a steady rate, which is the limit over its window.
--
-- state   a string: the time (microseconds since the Unix epoch) and how full the bucket was then, as whole units and parts
--         of one, of which it has as many as the window has microseconds; doubles of eight bytes, most significant first
--         (struct's '>ddd').
-- policy  limit, window, burst, for how long a request may wait, what drains in that time: units and parts; and the lowest
--         limit of those that share the bucket
-- says    whole units, parts, time until the bucket begins to drain (0, unless its state lies ahead)
--
-- In memory: as in Redis, as of now, or as it was written if that lies ahead; until it is changed also by which policy it has
-- drained, the string, and now: an override has another rate, and what drained by the one is not gone for the other.
local BY, VALUE, NOW = 4, 5, 6

-- No bucket holds more units, nor is a key kept for longer, in microseconds.
local MOST = 2 ^ 52

-- What is left of a bucket.
local function drained(value, policy, now)
  local at, whole, part = unpack_from('>ddd', value)
  local passed = now - at
  if passed <= 0 then return at, whole, part end
  local window = policy[2]
  local units, parts = divided(passed, policy[1], window)
  whole, part = whole - units, part - parts
  if part < 0 then whole, part = whole - 1, part + window end
  if not (whole >= 0) then return now, 0, 0 end
  return now, whole, part
end

-- Has a state that nobody has changed stand as it does for this policy.
local function look(state, policy)
  if state[BY] and state[BY] ~= policy then
    state[1], state[2], state[3] = drained(state[VALUE], policy, state[NOW])
    state[BY] = policy
  end
end

algorithms[7] = {
  extras = 0,
  load = function(value, policy, now)
    if not value or #value ~= 24 then return { now, 0, 0, false } end
    local at, whole, part = unpack_from('>ddd', value)
    local window = policy[2]
    local is_level = whole >= 0 and whole < MOST and part >= 0 and part < window
    if not is_level or whole + part == 0 then return { now, 0, 0, false } end
    if now - at < -window then
      discarded = discarded + 1
      return { now, 0, 0, false }
    end
    at, whole, part = drained(value, policy, now)
    return { at, whole, part, policy, value, now }
  end,
  read = function(state, policy, now, cost, reply, n)
    if state[BY] ~= policy then look(state, policy) end
    local at, whole, part, burst = state[1], state[2], state[3], policy[3]
    local ahead, excess = at - now, whole + cost - burst
    reply[n + 1], reply[n + 2], reply[n + 3] = whole, part, ahead
    local admits = excess < 0 or excess == 0 and part == 0
    local max_delay = policy[4]
    if not admits and max_delay > ahead and cost <= burst then
      local units, parts = policy[5], policy[6]
      -- It would wait for the time to come, too.
      if ahead > 0 then units, parts = divided(max_delay - ahead, policy[1], policy[2]) end
      admits = excess < units or excess == units and part <= parts
    end
    return n + 3, admits
  end,
  take = function(state, _, cost)
    state[2], state[BY] = state[2] + cost, false
  end,
  count_denied = function(state, policy, cost)
    local whole, burst = state[2], policy[3]
    if cost > burst then return false end
    state[BY] = false
    if whole < burst then
      if whole + cost < burst then state[2] = whole + cost else state[2], state[3] = burst, 0 end
    end
    return true
  end,
  -- What may have drained of it since does not come back: else units that others have taken would be free as well.
  refund = function(state, policy, cost, taken)
    look(state, policy)
    local whole, part, passed = state[2], state[3], state[1] - taken
    if whole + part == 0 then return false end
    local units, parts = 0, 0
    if passed > 0 then units, parts = divided(passed, policy[1], policy[2]) end
    if units >= cost then return false end
    whole, part = whole - (cost - units), part + parts
    if part >= policy[2] then whole, part = whole + 1, part - policy[2] end
    if whole < 0 then whole, part = 0, 0 end
    state[2], state[3], state[BY] = whole, part, false
    return true
  end,
  save = function(key, state, policy, now)
    local at, whole, part = state[1], state[2], state[3]
    local left = at - now + (whole * policy[2] + part) / policy[7]
    call('SET', key, pack('>ddd', at, whole, part), 'PX', lifetime(left < MOST and left or MOST))
  end,
}
