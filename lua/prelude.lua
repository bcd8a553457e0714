-- What stands before the algorithms: their table, by the numbers that batches name them by, and what several have in
-- common: windows, each an end (microseconds since the Unix epoch) and the units taken in it, written `END:USED`.
-- Numbers are doubles: whatever is written goes through format('%.0f').

local algorithms = {}
local format, find, tonumber, ceil = string.format, string.find, tonumber, math.ceil

-- Whether a window that was found holds now, and whether it is void because it lies more than a window ahead, as it
-- does when the clock was set back.
local function holds(ends, used, window, now)
  if used > 0 and ends - now > 2 * window then return false, true end
  return used > 0 and ends > now, false
end

-- How many milliseconds a key lives whose state is over at `ends`: so long at least. Where it is not Redis that tells
-- the time, that time may go more slowly.
local spare = ARGV[1] == '' and 0 or 600000
local function lifetime(ends, now)
  local millis = ceil((ends - now) / 1000)
  if millis < 1 then millis = 1 end
  return millis + spare
end
