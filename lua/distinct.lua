-- distinct: limits the different values seen in a window. A value that was seen already is always admitted.
--
-- state   a sorted set: the hashes of the values (16 bytes each). A score is the time at which the value was last seen,
--         in microseconds since the Unix epoch, plus a half if it had been seen before at the same time. So a refund
--         distinguishes a value that only its request has brought from one that another request relies on.
-- policy  limit, window
-- detail  the value's hash
-- reply   values in the window, time until the oldest leaves (a whole window if there is none), time until this one
--         fits, or, if it fits, until TIME (0, unless the state is ahead), and, if this value is in the window, time until
--         the oldest leaves once this one is seen again; else 0
--
-- In memory a list, since its access is faster than a field's:
local KEY, USED, TIME, KNOWN, FIRST, SEEN, LIST, MOVED, SCORE, CUTOFF, NEWEST, STALE, REPEATED = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
-- KEY     the key
-- USED    values in the window
-- TIME    the limit's own time: now, or the newest value's time if that is ahead
-- KNOWN   the number of these values that are stored
-- FIRST   when the oldest of them was seen
-- SEEN, LIST
--         the values to write, as a set and as a list
-- MOVED   the stored times of the values to write
-- SCORE   when the value last read was seen: false if it was not, true if it is to be written
-- CUTOFF  the start of the window
-- NEWEST  when the newest stored value was seen, false if there is none
-- STALE   whether the key must be deleted first: it has another type, or void state
-- REPEATED
--         of the values to write, those that had been seen before at the same time, as a set

-- The time of a score.
local function time_of_score(score)
  return math.floor(score)
end

-- When the value that leaves as number `index` (from 0) was seen. Values to write leave last.
local function nth_seen_at(state, index)
  local known, moved = state[KNOWN], state[MOVED]
  if index >= known - #moved then return state[TIME] end
  if index == 0 and #moved == 0 then return state[FIRST] end
  local last = index + #moved
  if last >= known then last = known - 1 end
  local found = call('ZRANGE', state[KEY], format(integer, index - known), format(integer, last - known), 'WITHSCORES')
  for i = 2, #found, 2 do
    local time = time_of_score(found[i])
    local before = index + i / 2
    for j = 1, #moved do
      if moved[j] <= time then before = before - 1 end
    end
    -- `before`: the number that leave up to and including this one.
    if before > index then return time end
  end
  return state[TIME]
end

algorithms[9] = {
  width = 2,
  load = function(key, policy, now)
    local found, window = try_call('ZRANGE', key, '-1', '-1', 'WITHSCORES'), policy[2]
    local newest = found[2] and time_of_score(found[2])
    if not newest or newest - now > window then
      local is_foreign = not found[1] and is_wrong_type(found)
      local stale = newest and true or is_foreign
      if newest and newest < 2 ^ 53 then discarded = discarded + 1 else spoilt = stale end
      return { key, 0, now, 0, false, {}, {}, {}, false, false, false, stale, {} }
    end
    local at = newest > now and newest or now
    local cutoff = at - window
    local known = newest > cutoff and call('ZCOUNT', key, format(integer, cutoff + 1), '+inf') or 0
    local first = newest
    if known > 1 then
      local rank = format(integer, -known)
      first = time_of_score(call('ZRANGE', key, rank, rank, 'WITHSCORES')[2])
    end
    return { key, known, at, known, first, {}, {}, {}, false, cutoff, newest, false, {} }
  end,
  read = function(state, policy, now, cost, reply, n, value)
    local used, limit, window = state[USED], policy[1], policy[2]
    local score = state[SEEN][value]
    if not score and state[KNOWN] > 0 then
      local stored = call('ZSCORE', state[KEY], value)
      score = stored and time_of_score(stored)
      if score and score <= state[CUTOFF] then score = false end
    end
    score = score or false
    local oldest = nth_seen_at(state, 0)
    local fits, again = oldest, 0
    local excess = used + (cost > 0 and 1 or 0) - limit
    if excess > 1 and not score then fits = nth_seen_at(state, excess - 1) end
    if score then
      again = oldest
      if score ~= true and cost > 0 and score == oldest then
        local moved = state[MOVED]
        moved[#moved + 1] = score
        again = nth_seen_at(state, 0)
        moved[#moved] = nil
      end
      again = again + window - now
    end
    state[SCORE] = score
    local admits = score and true or used < limit or cost == 0 and used == limit
    fits = admits and state[TIME] or fits + window
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = used, oldest + window - now, fits - now, again
    return n + 4, admits
  end,
  take = function(state, _, _, value)
    local score, written, list, moved = state[SCORE], state[SEEN], state[LIST], state[MOVED]
    if not score then
      state[USED] = state[USED] + 1
    elseif score ~= true then
      moved[#moved + 1] = score
    end
    if score == true or score == state[TIME] then state[REPEATED][value] = true end
    if not written[value] then
      written[value] = true
      list[#list + 1] = value
    end
  end,
  count_denied = never_counted,
  -- A value that was seen again since then is kept.
  refund = function(key, _, _, at, value)
    local score = number_of(try_call('ZSCORE', key, value))
    if score and tonumber(score) <= at then call('ZREM', key, value) end
  end,
  -- Values that have left the window are removed, and the expiry is renewed, when another eighth of a window begins:
  -- either command takes as long as the first.
  save = function(key, state, policy, now)
    local at, newest, window = state[TIME], state[NEWEST], policy[2]
    local step = (window - window % 8) / 8
    local renews = not newest or at - at % step ~= newest - newest % step
    if state[STALE] then call('DEL', key) end
    -- In this order, so that the set is never empty: a removed key can't be written while its slot is being moved.
    local added, score, repeated = {}, format(integer, at), state[REPEATED]
    for i, value in ipairs(state[LIST]) do
      added[2 * i - 1], added[2 * i] = repeated[value] and score .. '.5' or score, value
    end
    call('ZADD', key, unpack(added))
    if renews and newest then call('ZREMRANGEBYSCORE', key, '-inf', '(' .. format(integer, state[CUTOFF] + 1)) end
    if renews then call('PEXPIRE', key, lifetime_text(at + window + step - now)) end
  end,
}
