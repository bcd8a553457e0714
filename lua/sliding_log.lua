-- sliding_log: a log of when each unit was taken. It never admits more than the limit in any (now - window, now].
--
-- state   a sorted set with one member per unit. A score is the time the unit was taken, in microseconds since the Unix
--         epoch. A member is that time and the unit's number, as doubles of eight bytes, most significant first
--         (struct's '>dd'). So units of one instant are distinct, members are in the order of arrival, and the numbers
--         of two members tell how many are between them.
-- policy  limit, window, the most units that one request may take, and 1 if units may be refunded: then numbers have
--         gaps. Numbers of a policy without refunds have gaps, too, if it had refunds before, or has them in other
--         instances
-- reply   units used, time until the oldest leaves (a whole window if there are none), time until the request fits; if it
--         fits, time until AT (0, unless the state is ahead)
--
-- In memory a list, since its access is faster than a field's:
local KEY, AT, NUMBER, STORED, ADDED, OLDEST, NEWEST, STALE, COUNTED, CUT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
-- KEY     the key
-- AT      the limit's own time: now, or the newest unit's time if that is ahead
-- NUMBER  the newest unit's number
-- STORED, ADDED
--         units in the window: those stored, and those to add
-- OLDEST, NEWEST
--         when the oldest and the newest stored unit were taken; NEWEST is false if there are none, and may have left
--         the window if STORED is 0
-- STALE   whether the key must be deleted first: it has another type, or void state
-- COUNTED whether STORED was counted, not only derived from the numbers: if they have gaps, there are fewer units
-- CUT     whether the oldest units are to be removed although they are in the window

-- After this many units, those that have left the window are removed.
local PRUNE_EVERY = 24

-- The scores after the start of the window, as an argument of a command.
local cutoff_of, cutoff_text = nil, nil
local function score_after(cutoff)
  if cutoff ~= cutoff_of then cutoff_of, cutoff_text = cutoff, '(' .. format(integer, cutoff) end
  return cutoff_text
end

local function empty_state(key, now, stale)
  return { key, now, 0, 0, 0, now, false, stale }
end

-- When the unit that leaves as number `index` (from 0) was taken. Reads it from Redis if necessary.
local function unit_time(state, index, window)
  if index >= state[STORED] then return state[AT] end
  if index == 0 and state[OLDEST] then return state[OLDEST] end
  local rank = format(integer, index - state[STORED])
  local unit = call('ZRANGE', state[KEY], rank, rank)[1]
  local time = unit and #unit == 16 and unpack_from('>dd', unit)
  -- Units may have been removed from outside, so that there are fewer than the numbers tell, or others added.
  if time and time <= state[AT] and time > state[AT] - window then return time end
  return state[OLDEST] or state[AT]
end

algorithms[3] = {
  width = 1,
  load = function(key, policy, now)
    local found, window = try_call('ZRANGE', key, '-1', '-1'), policy[2]
    local last = found[1]
    if not last then
      spoilt = is_wrong_type(found)
      return empty_state(key, now, spoilt)
    end
    local newest, number
    if #last == 16 then newest, number = unpack_from('>dd', last) end
    if not (newest and newest < 2 ^ 53 and number >= 0 and number < 2 ^ 53) then
      spoilt = true
      return empty_state(key, now, true)
    end
    if newest - now > window then
      discarded = discarded + 1
      return empty_state(key, now, true)
    end
    local at = newest > now and newest or now
    local cutoff = at - window
    -- All units have left the window. They are removed after another one is written: a removed key can't be written
    -- while its slot is being moved.
    if not (newest > cutoff) then return { key, now, number, 0, 0, now, newest, false } end
    local first = call('ZRANGEBYSCORE', key, score_after(cutoff), '+inf', 'LIMIT', '0', '1')[1]
    local oldest, its
    if first and #first == 16 then oldest, its = unpack_from('>dd', first) end
    local stored, counted = its and number - its + 1, policy[4] == 1
    -- Others have written members, which have no numbers of ours.
    if not (its and oldest > cutoff and oldest <= newest and stored >= 1 and stored < 2 ^ 53) then
      oldest, stored, counted = newest, 2, true
    end
    if counted and stored > 1 then stored = call('ZCOUNT', key, score_after(cutoff), '+inf') end
    return { key, at, number, stored, 0, oldest, newest, false, counted }
  end,
  read = function(state, policy, now, cost, reply, n)
    local used, limit, window = state[STORED] + state[ADDED], policy[1], policy[2]
    local admits = used + cost <= limit and cost <= policy[3]
    -- No request is denied by the numbers alone.
    if (not admits or cost == 0) and state[STORED] > 1 and not state[COUNTED] then
      state[STORED] = call('ZCOUNT', state[KEY], score_after(state[AT] - window), '+inf')
      state[COUNTED] = true
      used = state[STORED] + state[ADDED]
      admits = used + cost <= limit and cost <= policy[3]
    end
    local returns = used > 0 and unit_time(state, 0, window) or state[AT]
    local fits = returns + window - now
    if admits then
      fits = state[AT] - now
    elseif cost <= limit and cost <= policy[3] then
      fits = unit_time(state, used + cost - limit - 1, window) + window - now
    end
    reply[n + 1], reply[n + 2], reply[n + 3] = used, returns + window - now, fits
    return n + 3, admits
  end,
  take = function(state, _, cost)
    state[ADDED] = state[ADDED] + cost
  end,
  count_denied = function(state, policy, cost)
    local limit = policy[1]
    if cost > limit or cost > policy[3] then return false end
    local stored, added = state[STORED], state[ADDED] + cost
    if added > limit then added = limit end
    if stored + added > limit then
      stored = limit - added
      state[STORED], state[CUT] = stored, true
      if stored > 0 then
        state[OLDEST] = false
        state[OLDEST] = unit_time(state, 0, policy[2])
      end
    end
    state[ADDED] = added
    return true
  end,
  -- Units of one instant are interchangeable.
  refund = function(key, _, cost, at)
    local time = format(integer, at)
    local units = try_call('ZRANGEBYSCORE', key, time, time, 'LIMIT', '0', format(integer, cost))
    if is_wrong_type(units) then return false end
    if #units > 0 then call('ZREM', key, unpack(units)) end
  end,
  -- When the log enters another window, its expiry is renewed and old units are removed. Old units are also removed
  -- every PRUNE_EVERY units: otherwise a log of a hundred would pass the 128 members up to which Redis stores a set
  -- compactly. Either command takes as long as all the rest, so neither runs each time.
  save = function(key, state, policy, now)
    local at, number, left, newest, window = state[AT], state[NUMBER], state[ADDED], state[NEWEST], policy[2]
    if state[STALE] then call('DEL', key) end
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
    if state[CUT] then
      local most = state[STORED] + state[ADDED]
      call('ZREMRANGEBYRANK', key, '0', format(integer, -most - 1))
    end
    local enters = not newest or at - at % window ~= newest - newest % window
    if newest and (enters or state[NUMBER] % PRUNE_EVERY + state[ADDED] >= PRUNE_EVERY) then
      call('ZREMRANGEBYSCORE', key, '-inf', format(integer, at - window))
    end
    if enters then call('PEXPIRE', key, lifetime_text(at + 2 * window - now)) end
  end,
}
