-- fixed_window with several tiers: one count per tier and calendar window (UTC). All tiers are one value. With one
-- tier, which needs no loops, single_counter.lua decides, on the same state.
--
-- state   a string: for each tier the window's end (microseconds since the Unix epoch) and the units used, as doubles
--         of eight bytes, most significant first (struct's '>dd').
-- policy  limit and window of each tier
-- reply   for each tier: units used, time until its window ends
--
-- In memory: as in Redis, followed by the latest stored end, at which the key expires.

algorithms[2] = {
  width = 1,
  load = function(value, policy, now)
    local n, state = #policy, nil
    if value and #value == 8 * n then
      local layout = policy.layout
      if not layout then
        layout = '>' .. string.rep('d', n)
        policy.layout = layout
      end
      state = { unpack_from(layout, value) }
    else
      state, spoilt = {}, value and true
    end
    local last = 0
    for i = 2, n, 2 do
      local ends, window = state[i - 1], policy[i]
      if not ends or not is_current(state[i], ends - now, window) then
        if ends and state[i] > 0 and ends > now then state.is_ahead = true end
        state[i - 1], state[i] = now - now % window + window, 0
      elseif ends > last then
        last = ends
      end
    end
    state[n + 1] = last
    return state
  end,
  read = function(state, policy, now, cost, reply, n)
    local admits = true
    for i = 1, #policy, 2 do
      local used = state[i + 1]
      reply[n + 1], reply[n + 2] = used, state[i] - now
      n = n + 2
      if used + cost > policy[i] then admits = false end
    end
    return n, admits
  end,
  take = function(state, policy, cost)
    for i = 2, #policy, 2 do state[i] = state[i] + cost end
  end,
  charge = function(state, policy, cost)
    for i = 2, #policy, 2 do state[i] = state[i] + (cost < policy[i - 1] and cost or policy[i - 1]) end
  end,
  count_denied = function(state, policy, cost)
    for i = 1, #policy, 2 do
      if cost > policy[i] then return false end
    end
    for i = 1, #policy, 2 do
      local used, limit = state[i + 1], policy[i]
      if used < limit then state[i + 1] = used + cost < limit and used + cost or limit end
    end
    return true
  end,
  refund = function(state, policy, cost, at)
    -- It would be written without the windows that are too far in the future for this clock.
    if state.is_ahead then return false end
    local refunded = false
    for i = 2, #policy, 2 do
      local ends, used = state[i - 1], state[i]
      if used > 0 and at < ends and at >= ends - policy[i] then
        state[i] = used > cost and used - cost or 0
        refunded = true
      end
    end
    return refunded
  end,
  save = function(key, state, policy, now)
    local n, last = #policy, state[1]
    for i = 3, n, 2 do
      if state[i] > last then last = state[i] end
    end
    local value = pack(policy.layout or '>' .. string.rep('d', n), unpack(state, 1, n))
    if last == state[n + 1] and state[n] % 16 ~= 0 then
      call('SETRANGE', key, '0', value)
    else
      call('SET', key, value, 'PX', lifetime_text(last - now))
    end
  end,
}
