-- wrk: GETs, by `wrk … -s load.lua -- KIND` each the same ("same"), on new connections ("close"), or with one of 10,000
-- API keys ("keys"), as nginx asks about these ("questions"). Counts 429 as denied and every other status but 200 as an error, and prints one line that begins
-- with RESULT.
local threads, requests, nth = {}, {}, 0
denied, errors = 0, 0

function setup(thread) table.insert(threads, thread) end

function init(arguments)
  local kind = arguments[1]
  if kind == "close" then wrk.headers["Connection"] = "close" end
  if kind == "questions" then
    wrk.headers["X-Original-URI"], wrk.headers["X-Forwarded-For"] = "/", "203.0.113.7"
  end
  local has_keys = kind == "keys" or kind == "questions"
  for key = 1, has_keys and 10000 or 1 do
    if has_keys then wrk.headers["X-Api-Key"] = "key-" .. key end
    requests[key] = wrk.format("GET", "/")
  end
end

function request()
  nth = nth + 7919
  return requests[nth % #requests + 1]
end

function response(status)
  if status == 429 then denied = denied + 1 elseif status ~= 200 then errors = errors + 1 end
end

function done(summary, latency)
  local all_denied, all_errors = 0, 0
  for _, thread in ipairs(threads) do
    all_denied, all_errors = all_denied + thread:get("denied"), all_errors + thread:get("errors")
  end
  local failed = summary.errors
  all_errors = all_errors + failed.connect + failed.read + failed.write + failed.timeout
  io.write(string.format('RESULT {"requests": %d, "denied": %d, "errors": %d, "p99": %.4f}\n',
    summary.requests, all_denied, all_errors, latency:percentile(99) / 1000))
end
