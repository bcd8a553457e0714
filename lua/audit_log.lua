-- Appends entries to one of the audit log's lists, which all instances share. It follows key_prelude.lua.
--
-- KEYS[1]  the list, oldest first
-- ARGV[1]  most entries of the list; ARGV[2] the list's lifetime in milliseconds
-- ARGV[3…] entries, as JSON, oldest first
-- Reply    the number of entries now

local list = KEYS[1]
remove_other_type(list, 'list')
local count = 0
for at = 3, #ARGV do
  count = redis.call('RPUSH', list, ARGV[at])
end
redis.call('LTRIM', list, -tonumber(ARGV[1]), -1)
redis.call('PEXPIRE', list, ARGV[2])
return math.min(count, tonumber(ARGV[1]))
