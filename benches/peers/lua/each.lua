-- wrk: a GET with each of so many API keys, by `wrk … -s each.lua -- KEYS`. Prints DONE when so many are answered, and
-- ERROR if one is not answered with 200.
local keys, sent, answered

function init(arguments)
  keys, sent, answered = tonumber(arguments[1]), 0, 0
end

function request()
  sent = sent + 1
  wrk.headers["X-Api-Key"] = "key-" .. sent % keys .. "-abcdefgh"
  return wrk.format("GET", "/")
end

local function say(text)
  io.write(text .. "\n")
  io.flush()
end

function response(status)
  answered = answered + 1
  if status ~= 200 then say("ERROR: status " .. status) end
  if answered == keys then say("DONE") end
end
