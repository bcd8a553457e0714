-- sliding_log: when each unit was taken. Never more than the limit in any (now - window, now].
--
-- state   a sorted set, one member a unit. Its score is the time it was taken, in microseconds since the Unix epoch. The
--         member is that time and the unit's number, as doubles of eight bytes, most significant first (struct's
--         '>dd'): so units of one instant stay apart, members have the order in which they came, and how many lie
--         between two of them need not be counted.
-- policy  limit, window, the most units that one request may take
-- says    units used, time until the oldest leaves (a whole window if there are none), time until the request fits
--
-- Most limits have few units in their window: the newest few are read first, and mostly they are all.

local FEW = 4

-- Adds nothing to the state: the first unit is yet to come.
local function empty(key, now, stale)
  return { key = key, at = now, stored = 0, added = 0, number = 0, known = {}, fresh = true, stale = stale }
end

-- When the unit was taken that leaves as number `index` (from 0), read from Redis if need be.
local function taken(state, index)
  if index >= state.stored then return state.at end
  local known = state.known
  local first = state.stored - #known
  if index >= first then return known[index - first + 1] end
  if index == 0 then return state.oldest end
  local rank = format(integer, index - state.stored)
  return (unpack_from('>dd', call('ZRANGE', state.key, rank, rank)[1]))
end

algorithms[3] = {
  extras = 0,
  load = function(key, policy, now)
    local found, window = ask('ZRANGE', key, '-4', '-1'), policy[2]
    local n = #found
    if n == 0 then return empty(key, now, found.err) end
    if #found[n] ~= 16 then return empty(key, now, true) end
    local newest, number = unpack_from('>dd', found[n])
    if newest - now > window then
      discarded = discarded + 1
      return empty(key, now, true)
    end
    local at = newest > now and newest or now
    local cutoff = at - window
    if not (newest > cutoff) then return empty(key, now, true) end

    local known, stored, old, oldest = {}, 0, false
    for i = 1, n do
      local time = #found[i] == 16 and unpack_from('>dd', found[i]) or cutoff
      if time > cutoff then
        stored = stored + 1
        known[stored] = time
      else
        old = true
      end
    end
    if stored == FEW then
      -- There may be more: they are numbered.
      local since = format('(' .. integer, cutoff)
      local first = call('ZRANGEBYSCORE', key, since, '+inf', 'LIMIT', '0', '1')[1]
      if first and #first == 16 then
        local time, its = unpack_from('>dd', first)
        stored, oldest = number - its + 1, time
      end
      old = true
    end
    return {
      key = key, at = at, stored = stored, added = 0, number = number, known = known,
      newest = newest, oldest = oldest, old = old,
    }
  end,
  stand = function(state, policy, now, cost, reply, n)
    local used = state.stored + state.added
    local limit, window = policy[1], policy[2]
    local admits = used + cost <= limit and cost <= policy[3]
    local returns = used > 0 and taken(state, 0) or state.at
    local fits = returns
    if not admits and cost <= limit and cost <= policy[3] then fits = taken(state, used + cost - limit - 1) end
    reply[n + 1], reply[n + 2], reply[n + 3] = used, returns + window - now, fits + window - now
    return n + 3, admits
  end,
  take = function(state, _, cost)
    state.added = state.added + cost
  end,
  -- Old units are removed, and the expiry is renewed, when the log enters another half of a window: each takes as long
  -- as the rest.
  save = function(key, state, policy, now)
    local at, number, left, window = state.at, state.number, state.added, policy[2]
    if state.stale then call('DEL', key) end
    local score = format(integer, at)
    if left == 1 then
      call('ZADD', key, score, pack('>dd', at, number + 1))
    else
      while left > 0 do
        local units, count = {}, left < 1000 and left or 1000
        for i = 1, count do
          units[2 * i - 1], units[2 * i] = score, pack('>dd', at, number + i)
        end
        call('ZADD', key, unpack(units))
        number, left = number + count, left - count
      end
    end
    local half = window / 2
    if state.fresh or at - at % half ~= state.newest - state.newest % half then
      if state.old then call('ZREMRANGEBYSCORE', key, '-inf', format(integer, at - window)) end
      call('PEXPIRE', key, lifetime(at + window + half - now))
    end
  end,
}
