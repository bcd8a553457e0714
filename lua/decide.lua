-- The driver. It stands last in the script and decides a batch of requests, one after the other. A request is admitted iff
-- all its checks admit it: first all limits are read; then, only if all admit, all are taken. A limit's state is kept for
-- the rest of the batch and written once at its end, so that a hot key costs one read and one write.
-- src/store/redis/batch.rs encodes the batch; src/store/redis/reply.rs decodes the status of each limit.
--
-- KEYS    the limits, each once. Those whose state is a string come first: one MGET reads them. Of a cluster, limits in
--         several slots can't be keys: then there are none, and the limits follow ARGV[3].
-- ARGV[1] the time in microseconds since the Unix epoch. Empty: Redis' own time. Tests set it.
-- ARGV[2] the batch, a MessagePack array:
--           the number of keys that are strings;
--           the number of policies; for each: its algorithm's number, its flags (1: shadow, 2: count_denied), the number of
--           numbers that describe it, those numbers;
--           the number of refunds, which come before all decisions; for each: a check as below, and the time at which it
--           was taken;
--           for each request: the number of its checks; for each: its limit (at most once in a request), its policy
--           (from 1), its cost, and its detail if its algorithm has one. The limits that are strings are numbered 1, 2,
--           3 …; the others, which follow them in KEYS, -1, -2, -3 …
-- ARGV[3] `read_only`: nothing is written; the reply is the same, except that a lack of memory does not show. It may be
--         left out, and is empty before limits
-- ARGV[4…] the limits, if there are no keys. If the node does not serve one of them, nothing is written
-- reply   integers: the number of states discarded since they lay too far in the future; the time; for each request: 1 if
--         it is admitted, 0 if it is denied, 2 if it would be admitted but Redis has no memory to write that; then for each
--         check the limit's status as its algorithm replies it (see the `reply` of each file; times are relative to now).
--         A cost of 0 only reads.
-- error   `PARTIAL` and the cause, if only some of the limits were written

local now = ARGV[1]
if now == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end

local batch = cmsgpack.unpack(ARGV[2])
local string_count = batch[1]
-- The limits follow position `before` of `names`. By limit: what its state is loaded from.
local names, before, values = KEYS, 0, {}
if ARGV[4] then
  -- One MGET takes keys of one slot alone.
  names, before = ARGV, 3
  for i = 1, string_count do
    local value = try_call('GET', ARGV[3 + i])
    if type(value) == 'table' then value = not is_wrong_type(value) and value end
    values[i] = value
  end
elseif string_count > 0 then
  values = call('MGET', unpack(KEYS, 1, string_count))
end
local other_count = #names - before - string_count
for i = 1, other_count do values[-i] = names[before + string_count + i] end

-- By number. An algorithm is defined when a batch first names it: src/store/redis/script.rs puts a branch for each in the place
-- of ALGORITHMS. A policy is the list of its numbers, with its algorithm and its flags.
local algorithms, policies, at = {}, {}, 3
for i = 1, batch[2] do
  local number, last = batch[at], at + 2 + batch[at + 2]
  if not algorithms[number] then
    -- ALGORITHMS
  end
  policies[i] = { algorithm = algorithms[number], flags = batch[at + 1], unpack(batch, at + 3, last) }
  at = last + 1
end

-- Whether an error says that Redis is out of memory. Redis refuses a script's first write for that, or none.
local function is_oom(why)
  local text = type(why) == 'table' and why.err or tostring(why)
  return string.find(text, 'OOM', 1, true)
end

-- By limit: its state, and its policy if the state has changed.
local states, changed = {}, {}

for _ = 1, batch[at] do
  local limit, policy, cost, detail = batch[at + 1], policies[batch[at + 2]], batch[at + 3], batch[at + 4]
  local algorithm = policy.algorithm
  at = at + algorithm.width + 1
  local taken_at = batch[at]
  if limit < 0 then
    -- If there is no memory to write the refund, the units stay taken.
    local refunded, why = pcall(algorithm.refund, values[limit], policy, cost, taken_at, detail, now)
    if not refunded and not is_oom(why) then error(why, 0) end
  else
    local state = states[limit]
    if not state then
      state = algorithm.load(values[limit], policy, now)
      states[limit] = state
    end
    if algorithm.refund(state, policy, cost, taken_at, detail, now) and not changed[limit] then changed[limit] = policy end
  end
end
at = at + 1

local size = #batch
local reply, n = { 0, now }, 2
-- The positions in the reply of the requests that were admitted and took something.
local admitted_positions, admitted_count = {}, 0

while at <= size do
  local checks, position, admitted, writes = batch[at], n + 1, true, false
  local policy = policies[batch[at + 2]]
  at, n = at + 1, position
  if checks == 1 and policy.flags == 0 then
    -- The same as below for one check, in one pass: most requests have one.
    local algorithm, limit, cost, detail = policy.algorithm, batch[at], batch[at + 2], batch[at + 3]
    local state = states[limit]
    if not state then
      state = algorithm.load(values[limit], policy, now)
      states[limit] = state
    end
    n, admitted = algorithm.read(state, policy, now, cost, reply, n, detail)
    if admitted and cost > 0 then
      algorithm.take(state, policy, cost, detail)
      if not changed[limit] then changed[limit] = policy end
      writes = true
    end
    at = at + algorithm.width
  else
    -- For each check: true if it admits, else the position in the reply before its status.
    local check_at, outcomes = at, {}
    for i = 1, checks do
      local limit, before_status, admits = batch[at], n, nil
      local policy = policies[batch[at + 1]]
      local algorithm, state = policy.algorithm, states[limit]
      if not state then
        state = algorithm.load(values[limit], policy, now)
        states[limit] = state
      end
      n, admits = algorithm.read(state, policy, now, batch[at + 2], reply, n, batch[at + 3])
      outcomes[i] = admits or before_status
      if not admits and policy.flags % 2 == 0 then admitted = false end
      at = at + algorithm.width
    end
    for i = 1, checks do
      local limit, policy, cost, detail = batch[check_at], policies[batch[check_at + 1]], batch[check_at + 2], batch[check_at + 3]
      local algorithm, state, outcome = policy.algorithm, states[limit], outcomes[i]
      if cost > 0 and admitted and outcome == true then
        algorithm.take(state, policy, cost, detail)
        if not changed[limit] then changed[limit] = policy end
        writes = true
      elseif cost > 0 and not admitted and outcome ~= true and policy.flags == 2
        and algorithm.count_denied(state, policy, cost) then
        if not changed[limit] then changed[limit] = policy end
        algorithm.read(state, policy, now, cost, reply, outcome, detail)
      end
      check_at = check_at + algorithm.width
    end
  end
  reply[position] = admitted and 1 or 0
  if writes then
    admitted_count = admitted_count + 1
    admitted_positions[admitted_count] = position
  end
end

local saved_count = 0
for limit = ARGV[3] == 'read_only' and string_count + 1 or -other_count, string_count do
  local policy = changed[limit]
  if policy then
    local key = limit > 0 and names[before + limit] or values[limit]
    local is_saved, why = pcall(policy.algorithm.save, key, states[limit], policy, now)
    if is_saved then
      saved_count = saved_count + 1
    elseif saved_count > 0 then
      return redis.error_reply('PARTIAL ' .. (type(why) == 'table' and why.err or tostring(why)))
    elseif is_oom(why) then
      -- Nothing was written. Denials stand.
      for i = 1, admitted_count do reply[admitted_positions[i]] = 2 end
      break
    else
      error(why, 0)
    end
  end
end
reply[1] = discarded
return reply
