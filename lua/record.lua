-- Writes entries of a table of records. It follows record_prelude.lua.
--
-- An entry was read and changed, and is written only if nobody else has written it in between. The first eight bytes of
-- its first value are random with each write. No other part of a value is read here.
--
-- KEYS[1…3] the table: its index, its dues, its total
-- KEYS[4…]  for each entry its keys: ARGV[4] of them
-- ARGV[1]   the least lifetime of the table, in milliseconds
-- ARGV[2]   most bytes of the table; ARGV[3] most entries
-- ARGV[4]   keys of an entry
-- ARGV[5…]  for each entry: its name; the first eight bytes of its first value when it was read, empty if there was
--           none; 1 if other instances have to read it again, 0 if only expired parts are removed; its size in units of
--           64 bytes; milliseconds until it is due; and for each key its value, empty to remove it, and its lifetime in
--           milliseconds
-- Reply     for each entry 0, or 1 if somebody else has written it; names of entries beyond the bounds of the table,
--           which the caller has to remove; bytes of the table

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local width = tonumber(ARGV[4])
local records = open_table(KEYS[1], KEYS[2], KEYS[3])

local outcomes = {}
local at = 5
for key_at = 4, #KEYS, width do
  local name, expected, is_change = ARGV[at], ARGV[at + 1], ARGV[at + 2] == '1'
  local value = redis.call('MGET', KEYS[key_at])[1] or ''
  if string.sub(value, 1, 8) ~= expected then
    outcomes[#outcomes + 1] = 1
  else
    outcomes[#outcomes + 1] = 0
    for nth = 0, width - 1 do
      local new, kept = ARGV[at + 5 + 2 * nth], ARGV[at + 6 + 2 * nth]
      if new == '' then
        redis.call('DEL', KEYS[key_at + nth])
      else
        redis.call('SET', KEYS[key_at + nth], new, 'PX', kept)
      end
    end
    if ARGV[at + 5] == '' then
      remove_name(records, name)
    else
      set_due(records, name, now, tonumber(ARGV[at + 4]), tonumber(ARGV[at + 3]))
      if is_change then redis.call('ZADD', records.index, number_text(now), name) end
    end
  end
  at = at + 5 + 2 * width
end

close_table(records, tonumber(ARGV[1]))
return { outcomes, excess_names(records, tonumber(ARGV[2]), tonumber(ARGV[3])), records.units * 64 }
