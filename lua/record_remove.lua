-- Removes entries of a table of records. It follows record_prelude.lua.
--
-- KEYS[1…3] the table: its index, its dues, its total
-- KEYS[4…]  the keys of the entries
-- ARGV[1…]  the names of the entries
-- Reply     bytes of the table

local records = open_table(KEYS[1], KEYS[2], KEYS[3])
for _, name in ipairs(ARGV) do remove_name(records, name) end
-- A call takes a bounded number of values.
for from = 4, #KEYS, 1000 do redis.call('UNLINK', unpack(KEYS, from, math.min(from + 999, #KEYS))) end
close_table(records)
return records.units * 64
