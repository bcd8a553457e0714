-- What stands before the algorithms: their table, by the numbers that batches name them by, and what they share.
--
-- An algorithm (one file each) is a table of functions:
--   load(value, policy, now)   the state of a limit, a table, from the string that is its value, or false
--   load(key, policy, now)     likewise, where it is no string: reads it, changing nothing
--   read(state, policy, now, cost, reply, n, extra)
--                              appends how the limit stands behind the n values of the reply; returns how many values
--                              there are now, and whether it admits
--   take(state, policy, cost, extra)
--                              counts a request in, in memory
--   count_denied(state, policy, cost)
--                              counts in one that was denied, as far as the limit goes; false if it can never fit
--   refund(state, policy, cost, at, extra, now)
--                              takes out, in memory, what was taken at the time `at`; returns whether it did
--   refund(key, policy, cost, at, extra, now)
--                              likewise, where the state is no string: in Redis, at once
--   save(key, state, policy, now)
--                              writes the state, with its expiry
-- and `extras`, how many values a check has behind its cost. A policy is the list of its numbers.
--
-- All of this runs for each decision: what is called here was measured. Numbers are doubles; they are written by
-- format(integer), which is exact up to 2^53 and faster than '%.0f', and never by `..`.

local algorithms = {}
-- Of each, what defines it, so that those are not made that a batch has no use for.
local define = {}
-- `ask` gives an error as a value.
local call, ask, try = redis.call, redis.pcall, pcall
local format, find, tonumber, type = string.format, string.find, tonumber, type
local pack, unpack_from = struct.pack, struct.unpack
local sub, concat = string.sub, table.concat

-- '%d' goes through C's long, which has 32 bits on some machines.
local integer = format('%d', 9007199254740991) == '9007199254740991' and '%d' or '%.0f'

-- a * b / m as its quotient and what remains, exactly, where a < 2^53, b < 2^35 and m < 2^45: nearly always the product is
-- below 2^53, too, and else b is taken by its digits to the base 128, the highest first. A quotient of 2^53 or more is only
-- about as large.
local function divided(a, b, m)
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

-- For how many milliseconds a key lives that matters for another `left` microseconds, as text. Where it is not Redis
-- that tells the time, that time may go more slowly.
local spare = ARGV[1] == '' and 1 or 600001
local last, written = nil, nil
local function lifetime(left)
  -- Calendar windows end together.
  if left ~= last then last, written = left, format(integer, (left - left % 1000) / 1000 + spare) end
  return written
end

-- A key whose window goes on is written over in place and keeps its expiry: to set it anew takes three times as long. If
-- somebody took the expiry away, it comes back with the next multiple of so many units.
local RENEWED = 16

-- Whether what was asked for is not ours, by the answer that is not as it should be: that is as good as nothing. What
-- may not even be read is an error still, and no limit that nobody has used.
local function foreign(answer)
  local why = answer.err
  if why and not find(why, 'WRONGTYPE', 1, true) then error(why, 0) end
  return why ~= nil
end

-- How many states lay so far in the future that they are void: a clock was set back.
local discarded = 0

-- Whether units that were taken in a window that ends in `left` microseconds count. It may not lie more than a window
-- ahead.
local function holds(used, left, window)
  if used > 0 and left > 2 * window then
    discarded = discarded + 1
    return false
  end
  return used > 0 and left > 0
end
