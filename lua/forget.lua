-- Forgets a limited client for all instances, and stores when: what was denied until then does not count any more.
-- key_prelude.lua stands before it.
--
-- KEYS[1]  the index: a sorted set of addresses, by the time of their last change in microseconds
-- KEYS[2]  the client's hash
-- KEYS[3…] the sketches of the users who were seen behind it
-- ARGV[1]  the client's address
-- ARGV[2]  milliseconds for which the time is stored: as long as an instance may hold what was denied before
-- Reply    the time in microseconds

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])

remove_other_type(KEYS[1], 'zset')
redis.call('DEL', unpack(KEYS, 2))
redis.call('HSET', KEYS[2], 'forgotten', now)
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
extend_expiry(KEYS[1], tonumber(ARGV[2]))
return now
