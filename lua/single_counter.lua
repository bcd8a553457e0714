-- single_counter: one count a window, which the first request of a window starts.
--
-- state   a string, `END:USED`
-- policy  limit, window
-- says    units used, time until the window ends (a whole window if none are used)

algorithms[1] = {
  extras = 0,
  load = function(key, policy, now)
    local value = redis.pcall('GET', key)
    local window = policy[2]
    if value and type(value) == 'string' then
      local _, _, ends, used = find(value, '^(%d+):(%d+)$')
      if ends then
        ends, used = tonumber(ends), tonumber(used)
        local held, future = holds(ends, used, window, now)
        if held then return { ends = ends, used = used } end
        return { ends = now + window, used = 0, future = future }
      end
    end
    return { ends = now + window, used = 0 }
  end,
  stand = function(state, policy, now, cost, reply)
    local n = #reply
    reply[n + 1], reply[n + 2] = state.used, state.ends - now
    return state.used + cost <= policy[1]
  end,
  take = function(state, _, _, cost)
    state.used = state.used + cost
  end,
  save = function(key, state, _, now)
    redis.call('SET', key, format('%.0f:%.0f', state.ends, state.used), 'PX', lifetime(state.ends, now))
  end,
}
