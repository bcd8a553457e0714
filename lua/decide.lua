-- The driver, behind the algorithms: decides over a batch of requests, one after the other, each as a whole. A request
-- is admitted iff all its checks admit it; first all are read, then, only if all admit, all are taken. What is read of a
-- limit is kept for the rest of the batch and written once at its end, so that a hot key costs one read and one write.
--
-- KEYS    the limits, each once
-- ARGV[1] the time in microseconds since the Unix epoch; empty: Redis' own. Tests set it.
-- ARGV[2] the batch, a MessagePack array:
--           the number of policies; of each: its algorithm's number, how many numbers describe it, those numbers;
--           of each request: the number of its checks; of each: its limit (from 1, not twice in a request), its policy
--           (from 1), its cost, and what else the algorithm takes
-- reply   integers: how many states lay so far in the future that they were discarded; of each request: 1 if it is
--         admitted, 0 if it is denied, 2 if it would be admitted but for memory, which the server has none of to write
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
local policies, of, at = {}, {}, 2
for i = 1, batch[1] do
  local policy, numbers = {}, batch[at + 1]
  for n = 1, numbers do policy[n] = batch[at + 1 + n] end
  policies[i], of[i] = policy, algorithms[batch[at]]
  at = at + 2 + numbers
end

local KEYS, size = KEYS, #batch
-- By limit: its state, and, if that has changed, its policy.
local states, changed = {}, {}
local reply, n = { 0 }, 1
local places, taking = {}, 0
while at <= size do
  local checks = batch[at]
  local from, place, admitted = at + 1, n + 1, true
  at, n = from, place
  for _ = 1, checks do
    local limit, index = batch[at], batch[at + 1]
    local policy, algorithm, state = policies[index], of[index], states[limit]
    if not state then
      state = algorithm.load(KEYS[limit], policy, now)
      states[limit] = state
    end
    local admits
    n, admits = algorithm.stand(state, policy, now, batch[at + 2], reply, n)
    if not admits then admitted = false end
    at = at + 3 + algorithm.extras
  end
  if admitted then
    reply[place] = 1
    local again, takes = from, false
    for _ = 1, checks do
      local limit, index, cost = batch[again], batch[again + 1], batch[again + 2]
      local algorithm = of[index]
      if cost > 0 then
        takes = true
        algorithm.take(states[limit], policies[index], cost, batch[again + 3])
        changed[limit] = index
      end
      again = again + 3 + algorithm.extras
    end
    if takes then
      taking = taking + 1
      places[taking] = place
    end
  else
    reply[place] = 0
  end
end

local function save(limit, index)
  of[index].save(KEYS[limit], states[limit], policies[index], now)
end

-- Redis refuses a script's first write for want of memory, or none.
local first, index = next(changed)
if first then
  local saved, why = try(save, first, index)
  if saved then
    for limit, index in next, changed, first do save(limit, index) end
  else
    local text = type(why) == 'table' and why.err or tostring(why)
    if not find(text, 'OOM', 1, true) then error(why, 0) end
    -- Nothing was written, and denials stand.
    for i = 1, taking do reply[places[i]] = 2 end
  end
end
reply[1] = discarded
return reply
