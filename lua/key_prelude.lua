-- What the scripts share that keep records, bans and the audit log; it stands before each of them.

-- Removes a key of ours that holds another type: nothing in it can be used, and it would never go by itself.
local function remove_other_type(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then
    redis.call('DEL', key)
  end
end

-- Makes a key stay for at least so many milliseconds. Never shortens what another instance asked for; a key without an
-- expiry gets one.
local function extend_expiry(key, milliseconds)
  if redis.call('PTTL', key) < milliseconds then
    redis.call('PEXPIRE', key, milliseconds)
  end
end
