-- Sorted sets of members (16 bytes each) with times as scores: shared by concurrency and distinct.

-- The number that a sorted-set command answered; false if the key holds another type.
local function number_of(answer)
  if type(answer) == 'table' then
    is_wrong_type(answer)
    return false
  end
  return answer
end

-- Denied members are never counted.
local function never_counted() return false end
