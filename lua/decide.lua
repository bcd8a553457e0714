-- The driver, behind the algorithms: decides over a batch of requests, one after the other, each as a whole. A request
-- is admitted iff all its checks admit it; first all are read, then, only if all admit, all are taken. What is read of a
-- limit is kept for the rest of the batch and written once at its end, so that a hot key costs one read and one write.
--
-- KEYS    the limits, each once, those first whose state is a string: they are read together
-- ARGV[1] the time in microseconds since the Unix epoch; empty: Redis' own. Tests set it.
-- ARGV[2] the batch, a MessagePack array:
--           how many keys are of strings;
--           the number of policies; of each: its algorithm's number, its flags (1: a shadow policy, 2: what it denies is
--           counted), how many numbers describe it, those numbers;
--           how many checks get a refund, which comes before all else; of each: as below, and the time at
--           which it was taken;
--           of each request: the number of its checks; of each: its limit (not twice in a request), its policy (from 1),
--           its cost, and what else the algorithm takes. Limits that are strings are numbered 1, 2, 3 …; the others,
--           which come behind them, -1, -2, -3 …
-- ARGV[3] whatever it is, nothing is written: the reply is what it would be otherwise, but for a lack of memory
-- reply   integers: how many states lay so far in the future that they were discarded; the time; of each request: 1 if it
--         is admitted, 0 if it is denied, 2 if it would be admitted but for memory, which the server has none of to write
--         that down; then of each check what its algorithm says of how it stands (see there; times are relative to
--         now). A cost of 0 only looks.

local now = ARGV[1]
if now == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end

local batch = cmsgpack.unpack(ARGV[2])
local strings = batch[1]
local values = strings > 0 and call('MGET', unpack(KEYS, 1, strings))
-- Of each policy: its numbers, its flags, and the functions of its algorithm. Lists, since a field takes longer to find.
local policies, flags, loads, reads, takes, denials, refunds, saves = {}, {}, {}, {}, {}, {}, {}, {}
local widths, at = {}, 3
for i = 1, batch[2] do
  local policy, numbers, number = {}, batch[at + 2], batch[at]
  if not algorithms[number] then define[number]() end
  local algorithm = algorithms[number]
  for n = 1, numbers do policy[n] = batch[at + 2 + n] end
  if numbers == 2 and algorithm.single then algorithm = algorithm.single end
  policies[i], flags[i], widths[i] = policy, batch[at + 1], 3 + algorithm.extras
  loads[i], reads[i], takes[i], saves[i] = algorithm.load, algorithm.read, algorithm.take, algorithm.save
  denials[i], refunds[i] = algorithm.count_denied, algorithm.refund
  at = at + 3 + numbers
end

local KEYS, size = KEYS, #batch
-- By limit: its state, and, if that has changed, its policy; and which have changed.
local states, changed, changes, count = {}, {}, {}, 0
local reply, n = { 0, now }, 2
-- Where in the reply it says of a request that it is admitted and takes something.
local places, taking = {}, 0

local function load(limit, index)
  local source
  if limit > 0 then source = values[limit] else source = KEYS[strings - limit] end
  local state = loads[index](source, policies[index], now)
  states[limit] = state
  return state
end

local function change(limit, index)
  changed[limit], count = index, count + 1
  changes[count] = limit
end

local function take(limit, index, cost, extra)
  takes[index](states[limit], policies[index], cost, extra)
  if not changed[limit] then change(limit, index) end
end

-- Redis refuses a script's first write for want of memory, or none.
local function is_oom(why)
  local text = type(why) == 'table' and why.err or tostring(why)
  return find(text, 'OOM', 1, true)
end

-- What a request is told, from place `n` on, of a limit that has denied it: if the policy counts what it denies, how that
-- stands then.
local function denied(limit, index, cost, extra, n)
  if flags[index] == 2 and cost > 0 and denials[index](states[limit], policies[index], cost) then
    if not changed[limit] then change(limit, index) end
    reads[index](states[limit], policies[index], now, cost, reply, n, extra)
  end
end

for _ = 1, batch[at] do
  local limit, index, cost, extra = batch[at + 1], batch[at + 2], batch[at + 3], batch[at + 4]
  local width = widths[index]
  local policy, taken = policies[index], batch[at + width + 1]
  if limit < 0 then
    -- Where there is no memory to write that down, it stays taken.
    local refunded, why = try(refunds[index], KEYS[strings - limit], policy, cost, taken, extra, now)
    if not refunded and not is_oom(why) then error(why, 0) end
  elseif refunds[index](states[limit] or load(limit, index), policy, cost, taken, extra, now) then
    if not changed[limit] then change(limit, index) end
  end
  at = at + width + 1
end
at = at + 1

while at <= size do
  local checks, place, admitted, took = batch[at], n + 1, true, false
  at, n = at + 1, place
  if checks == 1 then
    -- As below, in one go: most requests have one.
    local limit, index, cost, extra = batch[at], batch[at + 1], batch[at + 2], batch[at + 3]
    local policy, state = policies[index], states[limit] or load(limit, index)
    n, admitted = reads[index](state, policy, now, cost, reply, n, extra)
    if admitted then
      if cost > 0 then
        take(limit, index, cost, extra)
        took = true
      end
    elseif flags[index] > 0 then
      admitted = flags[index] ~= 2
      denied(limit, index, cost, extra, place)
    end
    at = at + widths[index]
  else
    -- Of each check that it admits, or behind which place it says that it does not.
    local from, said = at, {}
    for i = 1, checks do
      local limit, index, before, admits = batch[at], batch[at + 1], n, nil
      local state = states[limit] or load(limit, index)
      n, admits = reads[index](state, policies[index], now, batch[at + 2], reply, n, batch[at + 3])
      said[i] = admits or before
      if not admits and flags[index] % 2 == 0 then admitted = false end
      at = at + widths[index]
    end
    if admitted then
      for i = 1, checks do
        local limit, index, cost = batch[from], batch[from + 1], batch[from + 2]
        if cost > 0 and said[i] == true then
          take(limit, index, cost, batch[from + 3])
          took = true
        end
        from = from + widths[index]
      end
    else
      for i = 1, checks do
        local limit, index = batch[from], batch[from + 1]
        if said[i] ~= true then denied(limit, index, batch[from + 2], batch[from + 3], said[i]) end
        from = from + widths[index]
      end
    end
  end
  reply[place] = admitted and 1 or 0
  if took then
    taking = taking + 1
    places[taking] = place
  end
end

if ARGV[3] then count = 0 end
for i = 1, count do
  local limit = changes[i]
  local index, key = changed[limit], KEYS[limit > 0 and limit or strings - limit]
  if i > 1 then
    saves[index](key, states[limit], policies[index], now)
  else
    local saved, why = try(saves[index], key, states[limit], policies[index], now)
    if not saved then
      if not is_oom(why) then error(why, 0) end
      -- Nothing was written, and denials stand.
      for place = 1, taking do reply[places[place]] = 2 end
      break
    end
  end
end
reply[1] = discarded
return reply
