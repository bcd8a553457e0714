-- A table of records: of limited clients, or of users. The shared part of its scripts; it follows key_prelude.lua.
--
-- A table has three keys, besides those of its entries:
--   index  a sorted set of the entries' names, by the time of their last change in microseconds
--   dues   a sorted set of the same names, by DUE * SIZES + SIZE: when a part of the entry expires, in tenths of a
--          second since the Unix epoch, and the memory of the entry, in units of 64 bytes
--   total  a string: the sum of all sizes, in these units
-- The instance that writes an entry knows its size. So the table is kept within a budget although entries expire, or
-- are evicted, by themselves: their sizes count until their names are removed.

-- More than any size. DUE * SIZES is exact up to 2^53, which is the year 3058.
local SIZES = 262144

local function number_text(number)
  return string.format('%.0f', number)
end

-- The size in a score of the dues. 0 if there is none, or another program wrote it.
local function size_in(score)
  local size = (tonumber(score or '') or 0) % SIZES
  return size == size and size or 0
end

local function open_table(index, dues, total)
  remove_other_type(index, 'zset')
  remove_other_type(dues, 'zset')
  local units = tonumber(redis.call('MGET', total)[1] or '')
  if not (units and units >= 0 and units < 9007199254740992 / 64) then
    -- The total was evicted, never written, or written by another program.
    units = 0
    local all = redis.call('ZRANGE', dues, '0', '-1', 'WITHSCORES')
    for at = 2, #all, 2 do units = units + size_in(all[at]) end
  end
  return { index = index, dues = dues, total = total, units = units }
end

local function size_of(records, name)
  return size_in(redis.call('ZSCORE', records.dues, name))
end

-- Sets when an entry is due, in milliseconds from now, and its size.
local function set_due(records, name, now, due_in, size)
  records.units = records.units - size_of(records, name) + size
  local due = math.ceil((now + due_in * 1000) / 100000)
  redis.call('ZADD', records.dues, number_text(due * SIZES + size), name)
end

local function remove_name(records, name)
  records.units = records.units - size_of(records, name)
  redis.call('ZREM', records.index, name)
  redis.call('ZREM', records.dues, name)
end

-- Writes the table's own keys, with a lifetime of at least `milliseconds`, or the current one.
local function close_table(records, milliseconds)
  if redis.call('ZCARD', records.dues) == 0 then
    redis.call('DEL', records.index, records.dues, records.total)
    records.units = 0
    return
  end
  if milliseconds then
    extend_expiry(records.index, milliseconds)
    extend_expiry(records.dues, milliseconds)
  end
  records.units = math.max(records.units, 0)
  redis.call('SET', records.total, number_text(records.units), 'PX', number_text(math.max(redis.call('PTTL', records.dues), 1)))
end

-- The names of entries to remove, those that changed longest ago: the table may have `budget` bytes and `most` entries.
local function excess_names(records, budget, most)
  local names = {}
  local bytes, count = records.units * 64 - budget, redis.call('ZCARD', records.index) - most
  if bytes <= 0 and count <= 0 then return names end
  for at, name in ipairs(redis.call('ZRANGE', records.index, '0', '511')) do
    if bytes <= 0 and count <= 0 then break end
    names[at] = name
    bytes, count = bytes - size_of(records, name) * 64, count - 1
  end
  return names
end
