-- Reads the version of the API keys, and those that were changed last.
--
-- KEYS[1…3] see api_keys_write.lua
-- ARGV[1]   the number of a change: keys are read that were changed after it
-- ARGV[2]   the epoch of that number; if it is over, or has lost that change, all are read
-- ARGV[3]   how many keys to read
-- ARGV[4]   1 if a read goes on at that number: it may be above the version, which may have been lost alone
-- Reply     the epoch, empty if there is none; n; and for each key, in the order of the changes: the number of its
--           change, and its record

local records, order, version = KEYS[1], KEYS[2], KEYS[3]

local function has_type(key, kind)
  return redis.call('TYPE', key).ok == kind
end

local reply = {'', '0'}
if has_type(version, 'hash') then
  reply[1] = redis.call('HGET', version, 'epoch') or ''
  reply[2] = redis.call('HGET', version, 'n') or '0'
end
local is_known = reply[1] == ARGV[2] and (ARGV[4] == '1' or tonumber(ARGV[1]) <= (tonumber(reply[2]) or 0))
local from = is_known and ARGV[1] or '0'
if has_type(order, 'zset') and has_type(records, 'hash') then
  local found = redis.call('ZRANGEBYSCORE', order, '(' .. from, '9007199254740991', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
  for at = 1, #found, 2 do
    reply[#reply + 1] = string.format('%.0f', tonumber(found[at + 1]))
    local record = redis.call('HGET', records, found[at]) or ''
    -- No instance writes longer ones: 16 KiB and three numbers.
    reply[#reply + 1] = #record <= 16448 and record or ''
  end
end
return reply
