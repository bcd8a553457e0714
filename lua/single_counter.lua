-- One window with one count: single_counter, and fixed_window with one tier.
--
-- state   a string: the window's end (microseconds since the Unix epoch) and the units used, as doubles of eight bytes,
--         most significant first (struct's '>dd'). Parsing them from text would take as long as all the rest.
-- policy  limit, window, and 1 for calendar windows (UTC), 0 if the first request begins one
-- reply   units used, time until the window ends (a whole window if none are used)
--
-- In memory: the window's end, the units used, and whether the key has an expiry for that end.

-- The end of a window that begins now.
local function new_window_end(policy, now)
  local window = policy[2]
  return policy[3] == 1 and now - now % window + window or now + window
end

algorithms[1] = {
  width = 1,
  load = function(value, policy, now)
    local window = policy[2]
    if value and #value == 16 then
      local ends, used = unpack_from('>dd', value)
      local left = ends - now
      if used > 0 and used < 2 ^ 52 and left > 0 and left <= window or is_current(used, left, window) then
        return { ends, used, true }
      end
    elseif value then
      spoilt = true
    end
    return { new_window_end(policy, now), 0, false }
  end,
  read = function(state, policy, now, cost, reply, n)
    local used = state[2]
    reply[n + 1], reply[n + 2] = used, state[1] - now
    return n + 2, used + cost <= policy[1]
  end,
  take = function(state, _, cost)
    state[2] = state[2] + cost
  end,
  charge = function(state, policy, cost)
    state[2] = state[2] + (cost < policy[1] and cost or policy[1])
  end,
  count_denied = function(state, policy, cost)
    local used, limit = state[2], policy[1]
    if cost > limit then return false end
    if used < limit then state[2] = used + cost < limit and used + cost or limit end
    return true
  end,
  refund = function(state, policy, cost, at, _, now)
    local ends, used = state[1], state[2]
    if used == 0 or at >= ends or at < ends - policy[2] then return false end
    if used > cost then
      state[2] = used - cost
    else
      -- As if no window had begun.
      state[1], state[2], state[3] = new_window_end(policy, now), 0, false
    end
    return true
  end,
  save = function(key, state, _, now)
    local ends, used = state[1], state[2]
    if state[3] and used % 16 ~= 0 then
      call('SETRANGE', key, '0', pack('>dd', ends, used))
    else
      call('SET', key, pack('>dd', ends, used), 'PX', lifetime_text(ends - now))
    end
  end,
}
