-- sliding_log: when each unit was taken. Never more than the limit in any (now - window, now].
--
-- state   a sorted set, one member a unit: its score is the time it was taken, in microseconds since the Unix epoch;
--         the member is the same number, or the next that is free, so that units of one instant stay apart and
--         members have the order of their scores
-- policy  limit, window, the most units that one request may take
-- says    units used, time until the oldest leaves (a whole window if there are none), time until the request fits
--
-- Few limits have many units in their window: the newest few are read first, and mostly they are all.

local FEW = 4

-- The time of the unit that leaves as number `index` (from 0), read from Redis if need be.
local function taken(state, index)
  if index >= state.stored then return state.at end
  local first = #state.known - state.stored
  if first >= 0 then return state.known[first + index + 1] end
  local rank = index - state.stored
  if index == 0 and state.oldest then return state.oldest end
  local found = redis.call('ZRANGE', state.key, rank, rank, 'WITHSCORES')
  local time = tonumber(found[2])
  if index == 0 then state.oldest = time end
  return time
end

algorithms[3] = {
  extras = 0,
  load = function(key, policy, now)
    local found, window = redis.pcall('ZRANGE', key, -FEW, -1, 'WITHSCORES'), policy[2]
    local n = #found
    local state = { key = key, at = now, stored = 0, known = {}, added = 0, member = 0, fresh = true }
    if found.err then
      state.stale = true
      return state
    end
    if n == 0 then return state end
    local newest, member = tonumber(found[n]), tonumber(found[n - 1])
    if not member or newest - now > window then
      state.stale, state.future = true, member ~= nil
      return state
    end
    local at = newest > now and newest or now
    local cutoff, known = at - window, state.known
    if newest <= cutoff then
      state.stale = true
      return state
    end
    state.fresh, state.at, state.newest, state.member = false, at, newest, member
    for i = 2, n, 2 do
      local time = tonumber(found[i])
      if time > cutoff then known[#known + 1] = time else state.prune = true end
    end
    state.stored = #known
    if n == 2 * FEW and not state.prune then
      state.stored = redis.call('ZCOUNT', key, format('(%.0f', cutoff), '+inf')
    end
    return state
  end,
  stand = function(state, policy, now, cost, reply)
    local n, used = #reply, state.stored + state.added
    local limit, most = policy[1], policy[3]
    local admits = used + cost <= limit and cost <= most
    local returns = used > 0 and taken(state, 0) or state.at
    local fits = returns
    if not admits and cost <= limit and cost <= most then
      fits = taken(state, used + cost - limit - 1)
    end
    local window = policy[2]
    reply[n + 1], reply[n + 2], reply[n + 3] = used, returns + window - now, fits + window - now
    return admits
  end,
  take = function(state, _, _, cost)
    state.added = state.added + cost
  end,
  -- Old units are removed, and the expiry is renewed, a few times a window: each takes as long as the rest together.
  save = function(key, state, policy, now)
    local at, window, member = state.at, policy[2], state.member
    if state.stale then redis.call('DEL', key) end
    local score, left = format('%.0f', at), state.added
    while left > 0 do
      local units = {}
      for i = 1, left < 1000 and left or 1000 do
        member = member < at and at or member + 1
        units[2 * i - 1], units[2 * i] = score, format('%.0f', member)
      end
      left = left - #units / 2
      redis.call('ZADD', key, unpack(units))
    end
    local part = window / 4
    if state.fresh or at - at % part ~= state.newest - state.newest % part then
      if not state.fresh and (state.prune or state.stored > #state.known) then
        redis.call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', at - window))
      end
      redis.call('PEXPIRE', key, lifetime(at + window + part, now))
    end
  end,
}
