-- Forgets a limited client for all instances, and stores when: what was denied until then does not count any more.
-- record_prelude.lua stands before it.
--
-- KEYS[1…3] the table of clients: its index, its dues, its total
-- KEYS[4…]  the client's keys
-- ARGV[1]   the client's name in the table
-- ARGV[2]   milliseconds for which the time is stored: as long as an instance may hold what was denied before
-- ARGV[3]   eight bytes that begin no other value; ARGV[4] the size of such an entry in units of 64 bytes
-- Reply     the time in microseconds

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local records = open_table(KEYS[1], KEYS[2], KEYS[3])

redis.call('DEL', unpack(KEYS, 4))
redis.call('SET', KEYS[4], ARGV[3] .. struct.pack('>d', now), 'PX', ARGV[2])
set_due(records, ARGV[1], now, tonumber(ARGV[2]), tonumber(ARGV[4]))
redis.call('ZADD', records.index, number_text(now), ARGV[1])
close_table(records, tonumber(ARGV[2]))
return number_text(now)
