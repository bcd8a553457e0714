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
local KEYS, values = KEYS, nil
if ARGV[4] then
  -- One MGET takes keys of one slot alone.
  KEYS, values = { unpack(ARGV, 4) }, {}
  for i = 1, string_count do
    local value = try_call('GET', KEYS[i])
    if type(value) == 'table' then value = not is_wrong_type(value) and value end
    values[i] = value
  end
else
  values = string_count > 0 and call('MGET', unpack(KEYS, 1, string_count))
end
-- For each policy: its numbers, its flags, and the functions of its algorithm. Lists, since their access is faster than a
-- field's.
local policies, flags, loads, reads, takes, denials, refunds, saves = {}, {}, {}, {}, {}, {}, {}, {}
local widths, at = {}, 3
for i = 1, batch[2] do
  local policy, numbers, number = {}, batch[at + 2], batch[at]
  if not algorithms[number] then definitions[number]() end
  local algorithm = algorithms[number]
  for n = 1, numbers do policy[n] = batch[at + 2 + n] end
  if numbers == 2 and algorithm.single then algorithm = algorithm.single end
  policies[i], flags[i], widths[i] = policy, batch[at + 1], 3 + algorithm.detail_count
  loads[i], reads[i], takes[i], saves[i] = algorithm.load, algorithm.read, algorithm.take, algorithm.save
  denials[i], refunds[i] = algorithm.count_denied, algorithm.refund
  at = at + 3 + numbers
end

local size = #batch
-- By limit: its state, and its policy if the state has changed. `changes` lists the changed limits.
local states, changed, changes, change_count = {}, {}, {}, 0
local reply, n = { 0, now }, 2
-- The positions in the reply of the requests that were admitted and took something.
local admitted_positions, admitted_count = {}, 0

local function load(limit, index)
  local source
  if limit > 0 then source = values[limit] else source = KEYS[string_count - limit] end
  local state = loads[index](source, policies[index], now)
  states[limit] = state
  return state
end

local function mark_changed(limit, index)
  changed[limit], change_count = index, change_count + 1
  changes[change_count] = limit
end

local function take(limit, index, cost, detail)
  takes[index](states[limit], policies[index], cost, detail)
  if not changed[limit] then mark_changed(limit, index) end
end

-- Whether an error says that Redis is out of memory. Redis refuses a script's first write for that, or none.
local function is_oom(why)
  local text = type(why) == 'table' and why.err or tostring(why)
  return find(text, 'OOM', 1, true)
end

-- If the policy counts what it denies, counts a denied check and overwrites its status, after position `n` of the reply.
local function settle_denied(limit, index, cost, detail, n)
  if flags[index] == 2 and cost > 0 and denials[index](states[limit], policies[index], cost) then
    if not changed[limit] then mark_changed(limit, index) end
    reads[index](states[limit], policies[index], now, cost, reply, n, detail)
  end
end

for _ = 1, batch[at] do
  local limit, index, cost, detail = batch[at + 1], batch[at + 2], batch[at + 3], batch[at + 4]
  local width = widths[index]
  local policy, taken_at = policies[index], batch[at + width + 1]
  if limit < 0 then
    -- If there is no memory to write the refund, the units stay taken.
    local refunded, why = pcall(refunds[index], KEYS[string_count - limit], policy, cost, taken_at, detail, now)
    if not refunded and not is_oom(why) then error(why, 0) end
  elseif refunds[index](states[limit] or load(limit, index), policy, cost, taken_at, detail, now) then
    if not changed[limit] then mark_changed(limit, index) end
  end
  at = at + width + 1
end
at = at + 1

while at <= size do
  local checks, position, admitted, writes = batch[at], n + 1, true, false
  at, n = at + 1, position
  if checks == 1 then
    -- The same as below for one check, in one pass: most requests have one.
    local limit, index, cost, detail = batch[at], batch[at + 1], batch[at + 2], batch[at + 3]
    local policy, state = policies[index], states[limit] or load(limit, index)
    n, admitted = reads[index](state, policy, now, cost, reply, n, detail)
    if admitted then
      if cost > 0 then
        take(limit, index, cost, detail)
        writes = true
      end
    elseif flags[index] > 0 then
      admitted = flags[index] ~= 2
      settle_denied(limit, index, cost, detail, position)
    end
    at = at + widths[index]
  else
    -- For each check: true if it admits, else the position in the reply before its status.
    local check_at, outcomes = at, {}
    for i = 1, checks do
      local limit, index, before, admits = batch[at], batch[at + 1], n, nil
      local state = states[limit] or load(limit, index)
      n, admits = reads[index](state, policies[index], now, batch[at + 2], reply, n, batch[at + 3])
      outcomes[i] = admits or before
      if not admits and flags[index] % 2 == 0 then admitted = false end
      at = at + widths[index]
    end
    if admitted then
      for i = 1, checks do
        local limit, index, cost = batch[check_at], batch[check_at + 1], batch[check_at + 2]
        if cost > 0 and outcomes[i] == true then
          take(limit, index, cost, batch[check_at + 3])
          writes = true
        end
        check_at = check_at + widths[index]
      end
    else
      for i = 1, checks do
        local limit, index = batch[check_at], batch[check_at + 1]
        if outcomes[i] ~= true then settle_denied(limit, index, batch[check_at + 2], batch[check_at + 3], outcomes[i]) end
        check_at = check_at + widths[index]
      end
    end
  end
  reply[position] = admitted and 1 or 0
  if writes then
    admitted_count = admitted_count + 1
    admitted_positions[admitted_count] = position
  end
end

if ARGV[3] == 'read_only' then change_count = 0 end
local saved_count = 0
local is_saved, why = pcall(function()
  for i = 1, change_count do
    local limit = changes[i]
    local index = changed[limit]
    saves[index](KEYS[limit > 0 and limit or string_count - limit], states[limit], policies[index], now)
    saved_count = i
  end
end)
if not is_saved then
  if saved_count > 0 then return redis.error_reply('PARTIAL ' .. (type(why) == 'table' and why.err or tostring(why))) end
  if not is_oom(why) then error(why, 0) end
  -- Nothing was written. Denials stand.
  for k = 1, admitted_count do reply[admitted_positions[k]] = 2 end
end
reply[1] = discarded
return reply
