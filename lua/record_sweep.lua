-- Says which entries of a table of records are due, since something in them has expired, and which have to go, since the table
-- takes too much. record_prelude.lua stands before it.
--
-- KEYS[1…3] the table: its index, its dues, its total
-- ARGV[1]   bytes that it may take; ARGV[2] how many entries it may have; ARGV[3] how many due entries may be replied
-- Reply     names of entries that are due; names of entries that the caller is to remove; bytes that the table takes
--
-- An entry that is due is said once in two seconds: other instances leave it to the one that asked first.

local AGAIN_AFTER = 20

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local records = open_table(KEYS[1], KEYS[2], KEYS[3])
local latest = math.floor(now / 100000) * SIZES + SIZES - 1
local found = redis.call('ZRANGEBYSCORE', records.dues, '-inf', number_text(latest), 'WITHSCORES', 'LIMIT', '0', ARGV[3])
local due = {}
for at = 1, #found, 2 do
  due[#due + 1] = found[at]
  local size = tonumber(found[at + 1]) % SIZES
  redis.call('ZADD', records.dues, number_text((math.floor(now / 100000) + AGAIN_AFTER) * SIZES + size), found[at])
end
return { due, excess_names(records, tonumber(ARGV[1]), tonumber(ARGV[2])), records.units * 64 }
