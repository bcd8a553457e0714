-- fixed_window: one count a calendar window (UTC) and tier, all tiers in one value.
--
-- state   a string, `END:USED` of each tier in the order of the tiers, parted by spaces
-- policy  limit and window of each tier
-- says    of each tier: units used, time until its window ends

algorithms[2] = {
  extras = 0,
  load = function(key, policy, now)
    local value = redis.pcall('GET', key)
    local state, n, from = {}, #policy, 1
    if type(value) ~= 'string' then value = '' end
    for i = 2, n, 2 do
      local window = policy[i]
      local _, to, ends, used = find(value, '^(%d+):(%d+) ?', from)
      if ends then
        from, ends, used = to + 1, tonumber(ends), tonumber(used)
        local held, future = holds(ends, used, window, now)
        if held then
          state[i - 1], state[i] = used, ends
        else
          state.future = state.future or future
        end
      end
      if not state[i] then state[i - 1], state[i] = 0, now - now % window + window end
    end
    return state
  end,
  stand = function(state, policy, now, cost, reply)
    local n, admits = #reply, true
    for i = 1, #policy, 2 do
      local used = state[i]
      reply[n + i], reply[n + i + 1] = used, state[i + 1] - now
      if used + cost > policy[i] then admits = false end
    end
    return admits
  end,
  take = function(state, policy, _, cost)
    for i = 1, #policy, 2 do state[i] = state[i] + cost end
  end,
  save = function(key, state, policy, now)
    local last, value = state[2], format('%.0f:%.0f', state[2], state[1])
    for i = 3, #policy, 2 do
      value = format('%s %.0f:%.0f', value, state[i + 1], state[i])
      if state[i + 1] > last then last = state[i + 1] end
    end
    redis.call('SET', key, value, 'PX', lifetime(last, now))
  end,
}
