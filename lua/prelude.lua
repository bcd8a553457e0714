-- The shared part of the algorithms, the first part of the script. src/store/redis/script.rs joins it with decide.lua,
-- which gets the algorithms inserted.
--
-- An algorithm (one file each) is a table of functions:
--   load(value, policy, now)   returns the state of a limit, a table, from its value: a string, or false. Any program may
--                              have written the value: one that can't be ours counts as absent, and sets `spoilt`
--   load(key, policy, now)     likewise, if the state is not a string: reads the key, changes nothing
--   read(state, policy, now, cost, reply, n, detail)
--                              appends the limit's status to the n values of the reply; returns how many values there
--                              are now, and whether the limit admits the request
--   take(state, policy, cost, detail)
--                              counts an admitted request, in memory
--   charge(state, policy, cost)  likewise in excess: of each tier at most its limit. Only where costs are settled
--   count_denied(state, policy, cost)
--                              counts a denied request, up to the limit; returns false if it can never fit
--   refund(state, policy, cost, at, detail, now)
--                              removes, in memory, units taken at the time `at`; returns whether the state changed
--   refund(key, policy, cost, at, detail, now)
--                              likewise, if the state is not a string: in Redis, at once
--   save(key, state, policy, now)
--                              writes the state, with its expiry
-- and `width`, the number of values of a request for a check: 1, or 2 with a detail. A policy is the list of its
-- numbers.
--
-- All of this runs for each call, so every line was measured. Unused parts cost a call nothing: an algorithm is defined
-- when a batch first names it, and code that only one of them uses is in its branch. A local that a function captures
-- costs as much as the function itself. Numbers are doubles. They are written with format(integer), which is exact up
-- to 2^53 and faster than '%.0f'; never with `..`.

-- `try_call` returns an error as a value instead of raising it.
local call, try_call = redis.call, redis.pcall
local format, tonumber, type = string.format, tonumber, type
local pack, unpack_from = struct.pack, struct.unpack

-- '%d' uses C's long, which has 32 bits on some machines.
local integer = struct.size('l') == 8 and '%d' or '%.0f'

-- The lifetime in milliseconds, as text, of a key that is needed for another `left` microseconds. If the time is not
-- Redis' own (ARGV[1]), that clock may be slower, so keys live ten minutes longer.
--
-- A key whose window has not ended is overwritten in place (SETRANGE) and keeps its expiry: SET with an expiry takes
-- three times as long. If a key has lost its expiry, the next count that is a multiple of 16 sets it again.
local function lifetime_text(left)
  return format(integer, (left - left % 1000) / 1000 + (ARGV[1] == '' and 1 or 600001))
end

-- Whether an unexpected reply of try_call says that the key has another type. Such a key counts as absent. Any other
-- error is raised: a key that may not be read is not an unused limit.
local function is_wrong_type(reply)
  local why = reply.err
  if why and not string.find(why, 'WRONGTYPE', 1, true) then error(why, 0) end
  return why ~= nil
end

-- The number of states discarded since they were too far in the future: a clock was set back.
local discarded = 0

-- Whether the value that was loaded last can't be ours.
local spoilt = false

-- Whether the units of a window that ends in `left` microseconds count. A window that starts more than its length ahead
-- is discarded.
local function is_current(used, left, window)
  -- Not a number is not equal to itself.
  if not (used >= 0 and used < 2 ^ 52 and left == left) then
    spoilt = true
    return false
  end
  if used > 0 and left > 2 * window then
    discarded = discarded + 1
    return false
  end
  return used > 0 and left > 0
end
