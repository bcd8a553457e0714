-- concurrency: limits the requests in flight. Each request has a lease, which ends when its token is refunded, or
-- expires when it is not renewed in time.
--
-- state   a sorted set: the tokens of the leases (16 bytes each). A score is the lease's expiry in microseconds since
--         the Unix epoch. A lease that expires more than two lease lengths from now is void: a clock was set back.
-- policy  limit, how long a lease lasts
-- detail  the token
-- reply   leases held, 1 if the token holds one of them
--
-- In memory: the key; leases held; the number of stored leases that are expired or void (false: the key has another
-- type); the tokens to write, as a set and as a list; whether the token last read has a lease; the latest valid expiry.

-- The member's time if it is after `from` and not after `to`, else false or nil.
local function time_of(key, member, from, to)
  local time = tonumber(call('ZSCORE', key, member))
  return time and time > from and time <= to and time
end

algorithms[8] = {
  width = 2,
  load = function(key, policy, now)
    local latest = now + 2 * policy[2]
    local all, held = number_of(try_call('ZCARD', key)), 0
    spoilt = not all
    if all and all > 0 then held = call('ZCOUNT', key, '(' .. format(integer, now), format(integer, latest)) end
    return { key, held, all and all - held, {}, {}, false, latest }
  end,
  read = function(state, policy, now, cost, reply, n, token)
    local held, limit = state[2], policy[1]
    local renews = state[4][token] or held > #state[5] and time_of(state[1], token, now, state[7]) and true or false
    state[6] = renews
    reply[n + 1], reply[n + 2] = held, renews and 1 or 0
    return n + 2, renews or held < limit or cost == 0 and held == limit
  end,
  take = function(state, _, _, token)
    local written, list = state[4], state[5]
    if not state[6] then state[2] = state[2] + 1 end
    if not written[token] then
      written[token] = true
      list[#list + 1] = token
    end
  end,
  count_denied = never_counted,
  refund = function(key, _, _, _, token)
    number_of(try_call('ZREM', key, token))
  end,
  save = function(key, state, policy, now)
    local others = state[3]
    if not others then call('DEL', key) end
    -- First, so that the set is never empty: a removed key can't be written while its slot is being moved.
    local added, expiry = {}, format(integer, now + policy[2])
    for i, token in ipairs(state[5]) do added[2 * i - 1], added[2 * i] = expiry, token end
    call('ZADD', key, unpack(added))
    if others and others > 0 then
      call('ZREMRANGEBYSCORE', key, '-inf', format(integer, now))
      if call('ZREMRANGEBYSCORE', key, '(' .. format(integer, state[7]), '+inf') > 0 then discarded = discarded + 1 end
    end
    call('PEXPIRE', key, lifetime_text(2 * policy[2]))
  end,
}
