-- The driver, the last part of the script. It decides a batch of requests in order. A request is admitted iff all its
-- checks admit it: first all limits are read; then, only if all admit, all are taken. A limit's state is kept for the
-- rest of the batch and written once at its end, so that a hot key costs one read and one write.
-- src/store/redis/batch.rs encodes the batch; src/store/redis/reply.rs decodes the status of each limit.
--
-- KEYS    the limits, each once. Those whose state is a string are first: one MGET reads them. In a cluster, limits in
--         several slots can't be keys: then there are none, and the limits follow ARGV[3].
-- ARGV[1] the time in microseconds since the Unix epoch. Empty: Redis' own time. Tests set it.
-- ARGV[2] the batch, a MessagePack array:
--           the number of keys that are strings;
--           the number of policies; for each: its algorithm's number, its flags (1: shadow, 2: count_denied, 4: a request
--           that finds the limit spoilt is not decided), the count of the numbers that describe it, those numbers;
--           the number of settlements, which precede all decisions; for each: its policy (from 1), the units to refund, or
--           if negative those to take beyond what was taken, its limit, its detail if its algorithm has one, and the time
--           at which it was taken;
--           the requests, as runs of successive requests that differ only in their limits. For each run: the number of
--           requests; the number of checks of each; for each check its policy and its cost; then for each request, for
--           each check: its limit (at most once in a request), and its detail if its algorithm has one.
--           The limits that are strings are numbered 1, 2, 3 …; the others, which follow them in KEYS, -1, -2, -3 …
-- ARGV[3] `read_only`: nothing is written; the reply is the same, except that a lack of memory does not show. It may be
--         left out, and is empty before limits
-- ARGV[4…] the limits, if there are no keys. If the node does not serve one of them, nothing is written
-- reply   a string of doubles, eight bytes each, least significant first: the number of states discarded since they are
--         too far in the future, or -1 if Redis had no memory and nothing was written; the time; for each request: 0 if
--         it is denied, -1 if it is denied by a limit of which the batch took units before, 1 if it is admitted, 2 if
--         it is admitted and took nothing, -3 if it is not decided, since the value of a limit can't be ours; then for
--         each check the limit's status in its algorithm's format (see `reply` of each file; times are relative to now).
--         A cost of 0 only reads. Last, the numbers of the limits whose values can't be ours. They count as absent, and
--         are removed unless this batch has written them
--         Or -2 and the time, if a limit's windows of the calendar do not hold the time: nothing was read or written
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
-- The limits follow position `before` of `names`. `values`, by limit: the source of its state.
local names, before, values = KEYS, 0, {}
if ARGV[4] then
  -- One MGET takes only keys of one slot.
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

-- By number. An algorithm is defined when a batch first names it: src/store/redis/script.rs replaces ALGORITHMS by a
-- branch for each. A policy is the list of its numbers, with its algorithm and its flags.
local algorithms, policies, at = {}, {}, 3
for i = 1, batch[2] do
  local number, last = batch[at], at + 2 + batch[at + 2]
  if not algorithms[number] then
    -- ALGORITHMS
  end
  policies[i] = { algorithm = algorithms[number], flags = batch[at + 1], unpack(batch, at + 3, last) }
  at = last + 1
end

-- By limit: its state; its policy if the state has changed; whether a refund or a denial was the first to change it.
local states, changed, not_taken = {}, {}, nil
-- The limits whose values can't be ours, or nil.
local spoilt_limits

-- Notes such a limit. Returns whether a request by this policy must not be decided.
local function note_spoilt(limit, policy)
  spoilt, spoilt_limits = false, spoilt_limits or {}
  spoilt_limits[#spoilt_limits + 1] = limit
  return policy.flags >= 4
end

for _ = 1, batch[at] do
  local policy, cost, limit, detail = policies[batch[at + 1]], batch[at + 2], batch[at + 3], batch[at + 4]
  local algorithm = policy.algorithm
  at = at + algorithm.width + 3
  local taken_at = batch[at]
  if limit < 0 then
    -- If there is no memory to write the refund, the units count on.
    local refunded, why = pcall(algorithm.refund, values[limit], policy, cost, taken_at, detail, now)
    if not refunded and not string.find(type(why) == 'table' and why.err or why, 'OOM', 1, true) then error(why, 0) end
  else
    local state = states[limit]
    if not state then
      state = algorithm.load(values[limit], policy, now)
      states[limit] = state
      if spoilt then note_spoilt(limit, policy) end
    end
    if cost < 0 then
      algorithm.charge(state, policy, -cost)
      changed[limit] = changed[limit] or policy
    elseif algorithm.refund(state, policy, cost, taken_at, detail, now) and not changed[limit] then
      changed[limit], not_taken = policy, not_taken or {}
      not_taken[limit] = true
    end
  end
end
at = at + 1

local size = #batch
local reply, n = { 0, now }, 2
-- For each check of a request: true if it admits, else the position in the reply before its status.
local outcomes = {}

while at <= size do
  local count, checks, policy = batch[at], batch[at + 1], policies[batch[at + 2]]
  -- Check i has its policy at run_at + 2 * i, and its cost after that. The requests follow.
  local run_at = at
  at = at + 2 + 2 * checks
  if checks == 1 and policy.flags % 4 == 0 then
    -- The same as below for one check, in one pass: most requests have one.
    local algorithm, cost = policy.algorithm, batch[run_at + 3]
    local load, read, take, width = algorithm.load, algorithm.read, algorithm.take, algorithm.width
    for _ = 1, count do
      local limit, detail, position, admitted, fails = batch[at], batch[at + 1], n + 1, nil, nil
      local state = states[limit]
      if not state then
        state = load(values[limit], policy, now)
        states[limit] = state
        if spoilt then fails = note_spoilt(limit, policy) end
      end
      reply[position] = 1
      n, admitted = read(state, policy, now, cost, reply, position, detail)
      if not admitted then
        reply[position] = changed[limit] and not (not_taken and not_taken[limit]) and -1 or 0
      elseif fails then
        reply[position] = -3
      elseif cost > 0 then
        take(state, policy, cost, detail)
        if not changed[limit] then changed[limit] = policy end
      else
        reply[position] = 2
      end
      at = at + width
    end
  else
    for _ = 1, count do
      local position, check_at, admission, fails = n + 1, at, 2, nil
      reply[position], n = 0, position
      for i = 1, checks do
        local policy, cost = policies[batch[run_at + 2 * i]], batch[run_at + 2 * i + 1]
        local limit, before_status, admits = batch[at], n, nil
        local algorithm, state = policy.algorithm, states[limit]
        if not state then
          state = algorithm.load(values[limit], policy, now)
          states[limit] = state
          if spoilt then fails = note_spoilt(limit, policy) or fails end
        end
        n, admits = algorithm.read(state, policy, now, cost, reply, n, batch[at + 1])
        outcomes[i] = admits or before_status
        if not admits and policy.flags % 2 == 0 and admission ~= 0 then
          admission = changed[limit] and not (not_taken and not_taken[limit]) and -1 or 0
        end
        at = at + algorithm.width
      end
      if fails and admission > 0 then admission = -3 end
      for i = 1, checks do
        local policy, cost, outcome = policies[batch[run_at + 2 * i]], batch[run_at + 2 * i + 1], outcomes[i]
        local algorithm, limit, detail = policy.algorithm, batch[check_at], batch[check_at + 1]
        local state = states[limit]
        if cost > 0 and admission > 0 and outcome == true then
          algorithm.take(state, policy, cost, detail)
          if not changed[limit] then changed[limit] = policy end
          admission = 1
        elseif cost > 0 and admission < 1 and outcome ~= true and policy.flags % 4 == 2
          and algorithm.count_denied(state, policy, cost) then
          if not changed[limit] then
            changed[limit], not_taken = policy, not_taken or {}
            not_taken[limit] = true
          end
          algorithm.read(state, policy, now, cost, reply, outcome, detail)
        end
        check_at = check_at + algorithm.width
      end
      reply[position] = admission
    end
  end
end

local is_read_only = ARGV[3] == 'read_only'
local first = is_read_only and string_count + 1 or -other_count
local saved_count = 0

-- Writes changed states, and removes `spoilt` limits. All it uses but the count are parameters, which cost less than
-- captured locals.
local function save_all(changed, states, names, before, values, now, first, last, spoilt)
  for limit = first, last do
    local policy = changed[limit]
    if policy then
      policy.algorithm.save(limit > 0 and names[before + limit] or values[limit], states[limit], policy, now)
      saved_count = saved_count + 1
    end
  end
  for _, limit in ipairs(spoilt or {}) do
    if not changed[limit] then call('DEL', limit > 0 and names[before + limit] or values[limit]) end
  end
end

local are_saved, why = pcall(save_all, changed, states, names, before, values, now, first, string_count,
  not is_read_only and spoilt_limits)
if not are_saved then
  local text = type(why) == 'table' and why.err or why
  if saved_count > 0 then return redis.error_reply('PARTIAL ' .. text) end
  -- Redis refuses a script's first write for lack of memory, or none. So nothing was written, and denials are valid,
  -- except those by limits of which the batch took units before.
  if not string.find(text, 'OOM', 1, true) then error(why, 0) end
  discarded = -1
end
reply[1] = discarded
for i = 1, spoilt_limits and #spoilt_limits or 0 do
  n = n + 1
  reply[n] = spoilt_limits[i]
end
return pack('<' .. string.rep('d', n), unpack(reply, 1, n))
