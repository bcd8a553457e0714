-- metadata_list: counts like single_counter, and writes down who made each request.
--
-- state   a list, oldest request first, the newest `keep` of a window: `END:USED ENTRY`, where USED are the units
--         taken when that request had been, and ENTRY is the request as JSON, if it is to be written down
-- policy  limit, window, keep
-- takes   ENTRY, or an empty string
-- says    units used, time until the window ends (a whole window if none are used)

algorithms[4] = {
  extras = 1,
  load = function(key, policy, now)
    local newest = redis.pcall('LINDEX', key, -1)
    local window = policy[2]
    if newest then
      local ends, used, future, _
      if type(newest) == 'string' then
        _, _, ends, used = find(newest, '^(%d+):(%d+) ')
      end
      if ends then
        local held
        ends, used = tonumber(ends), tonumber(used)
        held, future = holds(ends, used, window, now)
        if held then return { ends = ends, used = used, pushed = {} } end
      end
      return { ends = now + window, used = 0, pushed = {}, stale = true, fresh = true, future = future }
    end
    return { ends = now + window, used = 0, pushed = {}, fresh = true }
  end,
  stand = function(state, policy, now, cost, reply)
    local n = #reply
    reply[n + 1], reply[n + 2] = state.used, state.ends - now
    return state.used + cost <= policy[1]
  end,
  take = function(state, _, _, cost, entry)
    state.used = state.used + cost
    state.pushed[#state.pushed + 1] = format('%.0f:%.0f ', state.ends, state.used) .. entry
  end,
  save = function(key, state, policy, now)
    if state.stale then redis.call('DEL', key) end
    local length = redis.call('RPUSH', key, unpack(state.pushed))
    if length > policy[3] then redis.call('LTRIM', key, -policy[3], -1) end
    if state.fresh then redis.call('PEXPIRE', key, lifetime(state.ends, now)) end
  end,
}
