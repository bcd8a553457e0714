-- The quotient and the remainder of a * b / m, exactly, for a < 2^53, b < 2^35 and m < 2^45. The product is nearly
-- always below 2^53. If it is not, b is processed by its base-128 digits, the highest first. A quotient of 2^53 or more
-- is approximate.
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
