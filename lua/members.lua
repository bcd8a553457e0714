-- Sorted sets of members (16 bytes each) with times as scores: shared by concurrency and distinct.

-- The number that a sorted-set command answered; false if the key holds another type.
local function number_of(answer)
  if type(answer) == 'table' then
    is_wrong_type(answer)
    return false
  end
  return answer
end

-- The member's time if it is after `from` and not after `to`, else false or nil.
local function time_of(key, member, from, to)
  local time = tonumber(call('ZSCORE', key, member))
  return time and time > from and time <= to and time
end

-- Adds members, all with the same time.
local function add_members(key, members, time)
  local score, count = format(integer, time), #members
  if count == 1 then
    call('ZADD', key, score, members[1])
    return
  end
  local added = {}
  for i = 1, count do added[2 * i - 1], added[2 * i] = score, members[i] end
  call('ZADD', key, unpack(added))
end

local function remove_member(key, _, _, _, member)
  number_of(try_call('ZREM', key, member))
end

-- Denied members are never counted.
local function never_counted() return false end
