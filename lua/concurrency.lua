-- concurrency: how many requests are under way. Each holds a lease, which its token gives back, and which expires if nobody
-- renews it or gives it back.
--
-- state   a sorted set: the tokens of the leases (16 bytes each), by the time at which each expires, in microseconds since
--         the Unix epoch. What expires more than two lengths of a lease from now is void: a clock was set back.
-- policy  limit, how long a lease lasts
-- takes   the token
-- says    leases held, 1 if the token holds one of them
--
-- In memory: the key, leases held, how many others are stored (false: something else is in their place), which tokens are
-- to be written and the list of those, whether the last that asked holds a lease, and what time no lease may pass.

algorithms[8] = {
  extras = 1,
  load = function(key, policy, now)
    local furthest = now + 2 * policy[2]
    local all, held = number_of(ask('ZCARD', key)), 0
    if all and all > 0 then held = call('ZCOUNT', key, '(' .. format(integer, now), format(integer, furthest)) end
    return { key, held, all and all - held, {}, {}, false, furthest }
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
  refund = remove_member,
  save = function(key, state, policy, now)
    local others = state[3]
    if not others then
      call('DEL', key)
    elseif others > 0 then
      call('ZREMRANGEBYSCORE', key, '-inf', format(integer, now))
      if call('ZREMRANGEBYSCORE', key, '(' .. format(integer, state[7]), '+inf') > 0 then discarded = discarded + 1 end
    end
    add_members(key, state[5], now + policy[2])
    call('PEXPIRE', key, lifetime(2 * policy[2]))
  end,
}
