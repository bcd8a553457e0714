-- metadata_list: counts like single_counter, and records who made each request.
--
-- state   a list, oldest request first: `END:USED ENTRY`. END is the end of the window (microseconds since the Unix
--         epoch), USED the units used after that request, and ENTRY the request as JSON if it is recorded
--         (src/store/redis/entry.rs). The newest `keep` of a window are kept, at times up to twice as many. If a window
--         is longer than its entries may be kept, these are elements of other lists instead, whose keys end in
--         `:SLICE`. Each has the entries of `slice` microseconds, beginning SLICE times that many after the Unix epoch,
--         and expires four slices after it began. The count is kept.
-- policy  limit, window, keep, slice (0: the entries are kept until the window ends)
-- detail  ENTRY, or an empty string
-- reply   units used, time until the window ends (a whole window if none are used)
--
-- In memory: units used; the window's end; the end as text; the elements to add; whether they begin a new list; whether
-- the other elements of the list must be removed; whether USED of the newest element must be rewritten; whether the key
-- has another type.

-- While its slot is being moved, a removed key can't be written: no list is empty between two commands. A list of
-- entries that is already on the other node, or would begin here, can't be read or written: its entries are lost, but
-- no count is.
local function is_elsewhere(reply)
  local why = type(reply) == 'table' and reply.err
  return why and string.find(why, 'non local key', 1, true)
end

-- Rewrites USED of the newest element, if there is one.
local function recount(key, ends, used)
  local newest = call('LINDEX', key, '-1')
  if newest then call('LSET', key, '-1', format('%s:%d ', ends, used) .. string.gsub(newest, '^%d+:%d+ ', '', 1)) end
end

-- The key of the list for the entries of the time `at`.
local function slice_key(key, slice, at)
  return format('%s:' .. integer, key, (at - at % slice) / slice)
end

-- Adds elements to the list of their slice, and only the count to the main list.
local function save_slice(key, state, policy, now)
  local keep, slice = policy[3], policy[4]
  local list = slice_key(key, slice, now)
  local length = try_call('RPUSH', list, unpack(state[4]))
  if type(length) == 'table' then
    -- The entries of another program's key are lost, but no count is.
    if not is_elsewhere(length) and is_wrong_type(length) then call('DEL', list) end
  else
    if length > 2 * keep then call('LTRIM', list, format('%d', -keep), '-1') end
    call('PEXPIRE', list, lifetime_text(4 * slice - now % slice))
  end
  state[4] = { format('%s:%d ', state[3], state[1]) }
  state[5], state[6] = true, true
end

algorithms[4] = {
  width = 2,
  load = function(key, policy, now)
    local newest, window = try_call('LINDEX', key, '-1'), policy[2]
    local is_foreign = false
    if type(newest) == 'string' then
      local _, _, text, used = string.find(newest, '^(%d+):(%d+) ')
      if text then
        local ends = text + 0
        used = used + 0
        if is_current(used, ends - now, window) then return { used, ends, text, {} } end
      else
        spoilt = true
      end
    elseif newest then
      is_foreign = is_wrong_type(newest)
      spoilt = is_foreign
    end
    local ends = now + window
    return { 0, ends, format(integer, ends), {}, true, newest and true, false, is_foreign }
  end,
  read = function(state, policy, now, cost, reply, n)
    local used = state[1]
    reply[n + 1], reply[n + 2] = used, state[2] - now
    return n + 2, used + cost <= policy[1]
  end,
  take = function(state, _, cost, entry)
    local used, added = state[1] + cost, state[4]
    state[1] = used
    added[#added + 1] = format('%s:%d ', state[3], used) .. entry
  end,
  count_denied = function(state, policy, cost)
    local used, limit = state[1], policy[1]
    if cost > limit then return false end
    if used < limit then state[1], state[7] = used + cost < limit and used + cost or limit, true end
    return true
  end,
  refund = function(key, policy, cost, at, entry, now)
    local newest = try_call('LINDEX', key, '-1')
    if type(newest) ~= 'string' then
      if newest then is_wrong_type(newest) end
      return
    end
    local _, _, ends, used = string.find(newest, '^(%d+):(%d+) ')
    if not ends or at >= ends + 0 or at < ends - policy[2] or used + 0 >= 2 ^ 52 then return end
    used = used - cost
    if used < 0 then used = 0 end
    if entry ~= '' then
      local list = policy[4] == 0 and key or slice_key(key, policy[4], at)
      local all = try_call('LRANGE', list, format('%d', -2 * policy[3]), '-1')
      if is_elsewhere(all) or is_wrong_type(all) then all = {} end
      for i = #all, 1, -1 do
        local _, last = string.find(all[i], '^%d+:%d+ ')
        if last and string.sub(all[i], last + 1) == entry then
          if list == key and #all == 1 then
            call('LSET', key, '-1', format('%s:%d ', ends, used))
            return
          end
          call('LREM', list, '-1', all[i])
          break
        end
      end
    end
    recount(key, ends, used)
  end,
  save = function(key, state, policy, now)
    if policy[4] > 0 and #state[4] > 0 then save_slice(key, state, policy, now) end
    local length, keep, added = 0, policy[3], #state[4]
    if state[8] then call('DEL', key) end
    if added > 0 then length = call('RPUSH', key, unpack(state[4])) end
    if length > added and state[6] then call('LTRIM', key, format('%d', -added), '-1') end
    if state[7] then recount(key, state[3], state[1]) end
    if length > 2 * keep then call('LTRIM', key, format('%d', -keep), '-1') end
    if state[5] then call('PEXPIRE', key, lifetime_text(state[2] - now)) end
  end,
}
