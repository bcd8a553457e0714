-- What concurrency and distinct share: sorted sets of members (16 bytes each), each with a time as its score.

-- A number that was asked of a sorted set; false if there is something else in its place.
local function number_of(answer)
  if type(answer) == 'table' then
    foreign(answer)
    return false
  end
  return answer
end

-- When a member's time is, if it has one that counts: after `from`, and not after `to`.
local function time_of(key, member, from, to)
  local time = tonumber(call('ZSCORE', key, member))
  return time and time > from and time <= to and time
end

-- Adds members, each once, all for the same time.
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
  number_of(ask('ZREM', key, member))
end

-- Members are counted each once, and never when they are denied.
local function never_counted() return false end
