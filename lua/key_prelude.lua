-- The shared part of the scripts for records, bans, drains and the audit log. It precedes each of them.

-- Removes a key of ours that has another type: it is unusable, and might never expire.
local function remove_other_type(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then
    redis.call('DEL', key)
  end
end

-- Extends a key's lifetime to at least `milliseconds`. Never shortens another instance's; a key without an expiry gets
-- one.
local function extend_expiry(key, milliseconds)
  if redis.call('PTTL', key) < milliseconds then
    redis.call('PEXPIRE', key, milliseconds)
  end
end
