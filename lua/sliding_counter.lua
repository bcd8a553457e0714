-- sliding_counter: the count of this calendar window (UTC), plus the share of the previous window's count that a
-- sliding window still covers.
--
-- state   a string: the newer window's start (microseconds since the Unix epoch), the units taken in it, and those of
--         the previous window, as doubles of eight bytes, most significant first (struct's '>ddd').
-- policy  limit, window
-- reply   the newer window's units, the previous window's, time since the newer began (negative if it is ahead)
--
-- In memory: as in Redis, the part of the previous window that still counts (in microseconds), and whether the key has
-- an expiry for these windows.

-- A state with this many units or more is invalid.
local FULL = 2 ^ 52

-- The units that count: whole units, and whether there is a fraction (not 0).
local function counted_units(state, policy)
  local current, previous = state[2], state[3]
  if previous == 0 then return current, 0 end
  local units, parts = mul_div(state[4], previous, policy[2])
  return current + units, parts
end

algorithms[6] = {
  width = 1,
  load = function(value, policy, now)
    local window = policy[2]
    local passed = now % window
    local begun = now - passed
    if value and #value == 24 then
      local start, current, previous = unpack_from('>ddd', value)
      local units = current + previous
      if not (current >= 0 and previous >= 0 and units < FULL and start == start) then
        spoilt = true
      elseif units > 0 then
        if start == begun then return { start, current, previous, window - passed, true } end
        if start > now then
          if start - now <= window then return { start, current, previous, window, true } end
          discarded = discarded + 1
        elseif start + window == begun then
          return { begun, 0, current, window - passed, false }
        end
      end
    elseif value then
      spoilt = true
    end
    return { begun, 0, 0, window - passed, false }
  end,
  read = function(state, policy, now, cost, reply, n)
    local units, parts = counted_units(state, policy)
    reply[n + 1], reply[n + 2], reply[n + 3] = state[2], state[3], now - state[1]
    units = units + cost
    return n + 3, units < policy[1] or units == policy[1] and parts == 0
  end,
  take = function(state, _, cost)
    state[2] = state[2] + cost
  end,
  charge = function(state, policy, cost)
    state[2] = state[2] + (cost < policy[1] and cost or policy[1])
  end,
  count_denied = function(state, policy, cost)
    local limit = policy[1]
    if cost > limit then return false end
    local units, parts = counted_units(state, policy)
    local room = limit - units - (parts > 0 and 1 or 0)
    if room > 0 then state[2] = state[2] + (cost < room and cost or room) end
    return true
  end,
  refund = function(state, policy, cost, at)
    local start, window = state[1], policy[2]
    local index = at >= start and 2 or 3
    if at < start - window or at >= start + window or state[index] == 0 then return false end
    state[index] = state[index] > cost and state[index] - cost or 0
    return true
  end,
  save = function(key, state, policy, now)
    local start, current = state[1], state[2]
    local value = pack('>ddd', start, current, state[3])
    if state[5] and current % 16 ~= 0 then
      call('SETRANGE', key, '0', value)
    else
      call('SET', key, value, 'PX', lifetime_text(start + 2 * policy[2] - now))
    end
  end,
}
