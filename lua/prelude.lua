-- The table of algorithms, by their numbers, and the functions that they share. This file stands first in the script;
-- src/store/redis/script.rs puts it together: prelude, window_counter, members, the algorithms, decide.
--
-- An algorithm (one file each) is a table of functions:
--   load(value, policy, now)   returns the state of a limit, a table, from its value: a string, or false
--   load(key, policy, now)     likewise, if the state is not a string: reads the key, changes nothing
--   read(state, policy, now, cost, reply, n, detail)
--                              appends the limit's status to the n values of the reply; returns how many values there
--                              are now, and whether the limit admits the request
--   take(state, policy, cost, detail)
--                              counts an admitted request, in memory
--   count_denied(state, policy, cost)
--                              counts a denied request, up to the limit; returns false if it can never fit
--   refund(state, policy, cost, at, detail, now)
--                              removes, in memory, what was taken at the time `at`; returns whether the state changed
--   refund(key, policy, cost, at, detail, now)
--                              likewise, if the state is not a string: in Redis, at once
--   save(key, state, policy, now)
--                              writes the state, with its expiry
-- and `detail_count`, how many values (0 or 1) a check has after its cost. A policy is the list of its numbers.
--
-- All of this runs for each decision, so every call here was measured. Numbers are doubles. They are written with
-- format(integer), which is exact up to 2^53 and faster than '%.0f'; never with `..`.

local algorithms = {}
-- By number, the function that defines an algorithm. It runs when a batch first needs that algorithm.
local definitions = {}
-- `try_call` returns an error as a value instead of raising it.
local call, try_call, pcall = redis.call, redis.pcall, pcall
local format, find, tonumber, type = string.format, string.find, tonumber, type
local pack, unpack_from = struct.pack, struct.unpack
local sub, concat = string.sub, table.concat

-- '%d' uses C's long, which has 32 bits on some machines.
local integer = format('%d', 9007199254740991) == '9007199254740991' and '%d' or '%.0f'

-- The quotient and the remainder of a * b / m, exactly, for a < 2^53, b < 2^35 and m < 2^45. The product is nearly always
-- below 2^53. If it is not, b is processed by its base-128 digits, the highest first. A quotient of 2^53 or more is
-- approximate.
local function mul_div(a, b, m)
  local product = a * b
  if product < 9007199254740992 then
    local rest = product % m
    return (product - rest) / m, rest
  end
  local rest, quotient, unit, sum = a % m, 0, 268435456, nil
  local whole = (a - rest) / m * b
  a, rest = rest, 0
  for _ = 1, 5 do
    local lower = b % unit
    -- Below 2^53: each term is less than 2^52.
    sum = rest * 128 + a * ((b - lower) / unit)
    rest = sum % m
    quotient = quotient * 128 + (sum - rest) / m
    b, unit = lower, unit / 128
  end
  return whole + quotient, rest
end

-- The lifetime in milliseconds, as text, of a key that is needed for another `left` microseconds. If the time is not
-- Redis' own (ARGV[1]), that clock may be slower, so keys live ten minutes longer.
local EXTRA_MILLISECONDS = ARGV[1] == '' and 1 or 600001
local last, written = nil, nil
local function lifetime_text(left)
  -- Calendar windows end together, so the last result is often the next one.
  if left ~= last then last, written = left, format(integer, (left - left % 1000) / 1000 + EXTRA_MILLISECONDS) end
  return written
end

-- A key whose window has not ended is overwritten in place (SETRANGE) and keeps its expiry: SET with an expiry takes three
-- times as long. If a key has lost its expiry, the next count that is a multiple of this sets it again.
local RENEW_EVERY = 16

-- Whether an unexpected answer of try_call says that the key holds another type. Such a key is treated as absent. Any other
-- error is raised: a key that may not be read is not an unused limit.
local function is_wrong_type(answer)
  local why = answer.err
  if why and not find(why, 'WRONGTYPE', 1, true) then error(why, 0) end
  return why ~= nil
end

-- How many states were discarded since they lay too far in the future: a clock was set back.
local discarded = 0

-- Whether the units of a window that ends in `left` microseconds count. A window that starts more than its length ahead is
-- discarded.
local function is_current(used, left, window)
  if used > 0 and left > 2 * window then
    discarded = discarded + 1
    return false
  end
  return used > 0 and left > 0
end
