// top: who uses what, live.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "memory/base/json.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"
#include "tools/vgpuctl/screen.h"
#include "tools/vgpuctl/top_table.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

struct Snapshot {
  json status, vgpus;
};

std::variant<Snapshot, Refusal> take_snapshot(const Options& options) {
  Reply status = call(options, "GET", "/v1/status");
  if (const Refusal* refusal = std::get_if<Refusal>(&status)) return *refusal;
  Reply vgpus = call(options, "GET", "/v1/vgpus");
  if (const Refusal* refusal = std::get_if<Refusal>(&vgpus)) return *refusal;
  return Snapshot{std::get<json>(std::move(status)), std::get<json>(std::move(vgpus))};
}

std::string json_line(const Snapshot& now, json rates) {
  const std::chrono::duration<double> time = std::chrono::system_clock::now().time_since_epoch();
  rates["time"] = time.count();
  rates["device"] = now.status.value("/device/id"_json_pointer, json());
  rates["scheduler"] = now.status.value("scheduler", json());
  return json_text(rates);
}

// Draws until the user ends it. The refusal, if vgpud gave one.
std::optional<Refusal> draw(const Options& options, Screen* screen) {
  const std::chrono::nanoseconds interval(static_cast<int64_t>(options.interval * 1e9));
  auto before = take_snapshot(options);
  for (unsigned shown = 0; options.count == 0 || shown < options.count;) {
    if (const Refusal* refusal = std::get_if<Refusal>(&before)) return *refusal;
    if (shown == 0 && screen->terminal()) {  // something to see at once
      const Snapshot& first = std::get<Snapshot>(before);
      screen->show(top_lines(first.status, rates(json::array(), first.vgpus), screen->columns()));
    }
    if (!screen->wait(interval)) return std::nullopt;
    auto after = take_snapshot(options);
    if (const Refusal* refusal = std::get_if<Refusal>(&after)) return *refusal;
    const Snapshot& now = std::get<Snapshot>(after);
    const json change = rates(std::get<Snapshot>(before).vgpus, now.vgpus);
    if (options.json) {
      fmt::print("{}\n", json_line(now, change));
      std::fflush(stdout);
    } else {
      screen->show(top_lines(now.status, change, screen->columns()));
    }
    ++shown;
    before = std::move(after);
  }
  return std::nullopt;
}

}  // namespace

int top(const Options& options) {
  std::optional<Refusal> refusal;
  {
    Screen screen(options.json);
    refusal = draw(options, &screen);
  }
  return refusal ? print_refusal(*refusal, options.json) : kOk;
}

}  // namespace bandsaw::ctl
