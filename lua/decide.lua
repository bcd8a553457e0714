-- The driver: decides over a batch of requests, one after the other, each as a whole. A request is admitted iff
-- all its checks admit it; first all are read, then, only if all admit, all are taken. What is read of a limit is
-- kept for the rest of the batch and written once at its end, so that a hot key costs one read and one write.
--
-- KEYS   the limit of each check, in order; the same may come again in another request, but not in the same.
-- ARGV[1] the time in microseconds since the Unix epoch; empty: Redis' own. Tests set it.
-- ARGV[2] the batch, a MessagePack array:
--           the number of policies; of each: its algorithm's number, how many numbers describe it, those numbers
--           of each request: the number of its checks; of each: its policy (from 1), its cost, and what else the
--           algorithm takes
-- reply  integers: how many states lay so far in the future that they were discarded; of each request: 1 if it is
--        admitted, 0 if it is denied, 2 if it would be admitted but for memory, which the server has none of to write
--        that down; then of each check what its algorithm says of how it stands (see there; times are relative to
--        now). A cost of 0 only looks.
--
-- An algorithm (one file each, put before this one) is a table of functions:
--   load(key, policy, now)              reads the state, changing nothing
--   stand(state, policy, now, cost, reply)  appends to the reply; whether it admits
--   take(state, policy, now, cost, extra)   counts the request in, in memory
--   save(key, state, policy, now)       writes the state with its expiry
-- and `extras`, how many values a check has behind its cost.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end

local batch = cmsgpack.unpack(ARGV[2])
local policies, at = {}, 2
for i = 1, batch[1] do
  local policy = { algorithm = algorithms[batch[at]] }
  local numbers = batch[at + 1]
  for n = 1, numbers do policy[n] = batch[at + 1 + n] end
  policies[i] = policy
  at = at + 2 + numbers
end

local KEYS, size = KEYS, #batch
local states, changed, owners, changes = {}, {}, {}, 0
local reply, key, places = { 0 }, 0, {}
while at <= size do
  local checks = batch[at]
  at = at + 1
  local first_key, first_at, admitted = key, at, true
  local place = #reply + 1
  reply[place] = 0
  for _ = 1, checks do
    key = key + 1
    local name, policy = KEYS[key], policies[batch[at]]
    local algorithm = policy.algorithm
    local state = states[name]
    if not state then
      state = algorithm.load(name, policy, now)
      states[name] = state
      if state.future then reply[1] = reply[1] + 1 end
    end
    if not algorithm.stand(state, policy, now, batch[at + 1], reply) then admitted = false end
    at = at + 2 + algorithm.extras
  end
  if admitted then
    reply[place] = 1
    key, at = first_key, first_at
    for _ = 1, checks do
      key = key + 1
      local name, policy, cost = KEYS[key], policies[batch[at]], batch[at + 1]
      local algorithm = policy.algorithm
      if cost > 0 then
        places[#places + 1] = place
        local state = states[name]
        if not state.changed then
          state.changed = true
          changes = changes + 1
          changed[changes], owners[changes] = name, policy
        end
        algorithm.take(state, policy, now, cost, batch[at + 2])
      end
      at = at + 2 + algorithm.extras
    end
  end
end

for i = 1, changes do
  local name, policy = changed[i], owners[i]
  local saved, why = pcall(policy.algorithm.save, name, states[name], policy, now)
  if not saved then
    local text = type(why) == 'table' and why.err or tostring(why)
    if not find(text, 'OOM', 1, true) then error(why, 0) end
    -- Redis refuses a script's first write or none: nothing was written, and denials stand.
    for n = 1, #places do reply[places[n]] = 2 end
    break
  end
end
return reply
