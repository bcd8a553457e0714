-- Writes changes down in the list that all instances share: who did what.
--
-- KEYS[1]  the list, oldest first
-- ARGV[1]  entries at most; ARGV[2] milliseconds for which the list stays
-- ARGV[3…] entries, as JSON, oldest first
-- Reply    how many there are now

local list = KEYS[1]
local kind = redis.call('TYPE', list).ok
if kind ~= 'list' and kind ~= 'none' then
  redis.call('DEL', list)
end
local count = 0
for at = 3, #ARGV do
  count = redis.call('RPUSH', list, ARGV[at])
end
redis.call('LTRIM', list, -tonumber(ARGV[1]), -1)
redis.call('PEXPIRE', list, ARGV[2])
return math.min(count, tonumber(ARGV[1]))
