-- single_counter: one count a window, which the first request of a window starts.
--
-- state   a string, `END:USED`, END in microseconds since the Unix epoch
-- policy  limit, window
-- says    units used, time until the window ends (a whole window if none are used)
--
-- In memory: units used, the window's end, and that as text if it was read.

algorithms[1] = {
  extras = 0,
  load = function(value, policy, now)
    local window = policy[2]
    if value then
      local _, _, text, used = find(value, '^(%d+):(%d+)$')
      if text then
        -- Arithmetic reads a number from text faster than tonumber does.
        local ends = text + 0
        used = used + 0
        if holds(used, ends - now, window) then return { used, ends, text } end
      end
    end
    return { 0, now + window }
  end,
  stand = function(state, policy, now, cost, reply, n)
    local used = state[1]
    reply[n + 1], reply[n + 2] = used, state[2] - now
    return n + 2, used + cost <= policy[1]
  end,
  take = function(state, _, cost)
    state[1] = state[1] + cost
  end,
  save = function(key, state, _, now)
    local used, ends, text = state[1], state[2], state[3]
    if text and used % RENEWED ~= 0 then
      call('SETRANGE', key, '0', format('%s:%d', text, used))
    else
      call('SET', key, format('%s:%d', text or format(integer, ends), used), 'PX', lifetime(ends - now))
    end
  end,
}
