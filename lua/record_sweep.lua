-- Replies with entries of a table of records that are due, since a part of them has expired, and with those to remove,
-- since the table is too large. It follows record_prelude.lua.
--
-- KEYS[1…3] the table: its index, its dues, its total
-- ARGV[1]   most bytes of the table; ARGV[2] most entries; ARGV[3] most due entries in the reply
-- Reply     names of due entries; names of entries that the caller has to remove; bytes of the table
--
-- A due entry is in one reply every two seconds: other instances leave it to the one that asked first.

local AGAIN_AFTER = 20

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local records = open_table(KEYS[1], KEYS[2], KEYS[3])
local latest = math.floor(now / 100000) * SIZES + SIZES - 1
local found = redis.call('ZRANGEBYSCORE', records.dues, '-inf', number_text(latest), 'WITHSCORES', 'LIMIT', '0', ARGV[3])
local due = {}
for at = 1, #found, 2 do
  due[#due + 1] = found[at]
  local size = size_in(found[at + 1])
  redis.call('ZADD', records.dues, number_text((math.floor(now / 100000) + AGAIN_AFTER) * SIZES + size), found[at])
end
return { due, excess_names(records, tonumber(ARGV[1]), tonumber(ARGV[2])), records.units * 64 }
