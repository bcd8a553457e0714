-- fixed_window with windows of the calendar, such as months of a time zone, beside windows of constant length: one count
-- per tier and window. All tiers are one value. src/limit/calendar.rs computes when windows begin.
--
-- state   as fixed_window: for each tier the window's end (microseconds since the Unix epoch) and the units used
-- policy  the number of tiers; limit and window of each, where 0 is a window of the calendar; then for each of these the
--         beginnings of five successive windows, of which one of the first three must hold the time of the call
-- reply   for each tier: units used, time until its window ends
--
-- In memory: as in Redis, followed by the latest stored end, at which the key expires.

-- For each tier: the end of the window that holds `now`, the end of the next, and the position of the window's
-- beginnings, or 0. nil if no window of a tier holds `now`. `numbers` has the policy from the position `first` on.
local function windows_at(numbers, first, now)
  local windows, begins = {}, first + 2 * numbers[first] + 1
  for tier = 1, numbers[first] do
    local window, n = numbers[first + 2 * tier], 3 * tier
    if window > 0 then
      local ends = now - now % window + window
      windows[n - 2], windows[n - 1], windows[n] = ends, ends + window, 0
    else
      local at = begins
      while at < begins + 3 and (now < numbers[at] or now >= numbers[at + 1]) do at = at + 1 end
      if at == begins + 3 then return nil end
      windows[n - 2], windows[n - 1], windows[n] = numbers[at + 1], numbers[at + 2], begins - first + 1
      begins = begins + 5
    end
  end
  return windows
end

-- An override may have loaded the state that its policy changes: each computes these when they are first needed.
local function windows_of(policy, now)
  if not policy.windows then policy.windows = windows_at(policy, 1, now) end
  return policy.windows
end

local function layout_of(policy)
  if not policy.layout then policy.layout = '>' .. string.rep('d', 2 * policy[1]) end
  return policy.layout
end

-- Before anything is decided: if a policy of the batch has no window that holds the time, nothing is decided,
-- and the caller asks again, with windows about the time of this reply.
local position = at
for _ = i, batch[2] do
  if batch[position] == 10 and not windows_at(batch, position + 3, now) then return pack('<dd', -2, now) end
  position = position + 3 + batch[position + 2]
end

algorithms[10] = {
  width = 1,
  load = function(value, policy, now)
    local tiers, windows = policy[1], windows_of(policy, now)
    local is_ours, last = value and #value == 16 * tiers, 0
    local state = is_ours and { unpack_from(layout_of(policy), value) } or {}
    spoilt = value and not is_ours
    for tier = 1, tiers do
      local n = 2 * tier
      local ends, used = state[n - 1], state[n]
      if is_ours and not (used >= 0 and used < 2 ^ 52 and ends == ends) then ends, spoilt = nil, true end
      local is_counted = ends and used > 0 and ends > now
      if is_counted and ends <= windows[3 * tier - 1] then
        if ends > last then last = ends end
      else
        if is_counted then state.is_ahead, discarded = true, discarded + 1 end
        state[n - 1], state[n] = windows[3 * tier - 2], 0
      end
    end
    state[2 * tiers + 1] = last
    return state
  end,
  read = function(state, policy, now, cost, reply, n)
    local admits = true
    for i = 2, 2 * policy[1], 2 do
      local used = state[i]
      reply[n + 1], reply[n + 2] = used, state[i - 1] - now
      n = n + 2
      if used + cost > policy[i] then admits = false end
    end
    return n, admits
  end,
  take = function(state, policy, cost)
    for i = 2, 2 * policy[1], 2 do state[i] = state[i] + cost end
  end,
  charge = function(state, policy, cost)
    for i = 2, 2 * policy[1], 2 do state[i] = state[i] + (cost < policy[i] and cost or policy[i]) end
  end,
  count_denied = function(state, policy, cost)
    for i = 2, 2 * policy[1], 2 do
      if cost > policy[i] then return false end
    end
    for i = 2, 2 * policy[1], 2 do
      local used, limit = state[i], policy[i]
      if used < limit then state[i] = used + cost < limit and used + cost or limit end
    end
    return true
  end,
  refund = function(state, policy, cost, taken_at, _, now)
    -- It would be written without the windows that are too far in the future for this clock.
    if state.is_ahead then return false end
    local refunded, windows = false, windows_of(policy, now)
    for i = 2, 2 * policy[1], 2 do
      local ends, used, begins = state[i - 1], state[i], windows[3 * i / 2]
      local start = ends - policy[i + 1]
      if begins > 0 then
        start = policy[begins]
        for n = begins + 1, begins + 4 do
          if policy[n] < ends then start = policy[n] end
        end
      end
      if used > 0 and taken_at < ends and taken_at >= start then
        state[i] = used > cost and used - cost or 0
        refunded = true
      end
    end
    return refunded
  end,
  save = function(key, state, policy, now)
    local n, last = 2 * policy[1], state[1]
    for i = 3, n, 2 do
      if state[i] > last then last = state[i] end
    end
    local value = pack(layout_of(policy), unpack(state, 1, n))
    if last == state[n + 1] and state[n] % 16 ~= 0 then
      call('SETRANGE', key, '0', value)
    else
      call('SET', key, value, 'PX', lifetime_text(last - now))
    end
  end,
}
