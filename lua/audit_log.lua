-- Appends entries to one of the lists of the audit log that all instances share. key_prelude.lua stands before it.
--
-- KEYS[1]  the list, oldest first
-- ARGV[1]  how many entries the list may have; ARGV[2] milliseconds for which the list stays
-- ARGV[3…] entries, as JSON, oldest first
-- Reply    how many there are now

local list = KEYS[1]
remove_other_type(list, 'list')
local count = 0
for at = 3, #ARGV do
  count = redis.call('RPUSH', list, ARGV[at])
end
redis.call('LTRIM', list, -tonumber(ARGV[1]), -1)
redis.call('PEXPIRE', list, ARGV[2])
return math.min(count, tonumber(ARGV[1]))
