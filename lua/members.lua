-- Sorted sets of members (16 bytes each) with times as scores: shared by concurrency and distinct.

-- The number in a sorted-set command's reply; false if the key has another type.
local function number_of(reply)
  if type(reply) == 'table' then
    is_wrong_type(reply)
    return false
  end
  return reply
end

-- Denied members are never counted.
local function never_counted() return false end
