-- What wrk asks vgpud for: PAUSE_MS and names of virtual GPUs come after the address. A line of JSON says what came.
local targets, pause = {"/v1/status", "/v1/vgpus"}, 0
local threads = {}
wrong = 0

function setup(thread) table.insert(threads, thread) end

function init(arguments)
  pause = tonumber(arguments[1])
  for i = 2, #arguments do table.insert(targets, "/v1/vgpus/" .. arguments[i]) end
end

local count = 0
function request()
  count = count + 1
  return wrk.format("GET", targets[1 + count % #targets])
end

function delay() return pause end

function response(status) if status ~= 200 then wrong = wrong + 1 end end

function done(summary, latency)
  local refused = 0
  for _, thread in ipairs(threads) do refused = refused + thread:get("wrong") end
  local errors = summary.errors
  print(string.format('{"requests_a_second": %.1f, "latency_p50_ms": %.3f, "latency_p99_ms": %.3f, "latency_max_ms": %.3f, '
    .. '"not_answered": %d}', summary.requests * 1e6 / summary.duration, latency:percentile(50) / 1000,
    latency:percentile(99) / 1000, latency.max / 1000,
    refused + errors.connect + errors.read + errors.write + errors.timeout))
end
