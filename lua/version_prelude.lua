-- The numbers of changes, shared by the scripts that change bans and keys. It follows key_prelude.lua.
--
-- A version is a hash of the epoch, which is new after all was lost, and n, which each change increments.

local function whole(number)
  return string.format('%.0f', number)
end

-- The epoch, or false if there is none, and n.
local function read_version(version)
  local epoch = redis.call('HGET', version, 'epoch')
  local n = tonumber(redis.call('HGET', version, 'n') or '')
  local is_epoch = epoch and string.find(epoch, '^%w+$')
  if not is_epoch or not n or n < 0 or n >= 9007199254740992 or n % 1 ~= 0 then
    return false, 0
  end
  return epoch, n
end

-- Counts a change. If there is no epoch, `new_epoch` begins. Returns the epoch and the number of the change.
local function next_version(version, new_epoch)
  local epoch, n = read_version(version)
  epoch, n = epoch or new_epoch, n + 1
  redis.call('HSET', version, 'epoch', epoch, 'n', whole(n))
  return epoch, n
end
