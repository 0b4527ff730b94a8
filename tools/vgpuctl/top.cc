// top: who uses what, live.
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>

#include "memory/base/json.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"
#include "tools/vgpuctl/screen.h"
#include "tools/vgpuctl/signals.h"
#include "tools/vgpuctl/top_table.h"
#include "tools/vgpuctl/top_view.h"

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
  rates["devices"] = json::array();
  for (const json& device : now.status.value("devices", json::array()))
    rates["devices"].push_back(device.value("id", ""));
  rates["scheduler"] = now.status.value("scheduler", json());
  return json_text(rates);
}

std::chrono::steady_clock::time_point next_sample(const Options& options) {
  return std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(options.interval * 1e9));
}

// Each draws until the user ends it, and returns the refusal, if vgpud gave one.

// Lines for who reads no terminal: a table or an object each time.
std::optional<Refusal> print_tables(const Options& options, Signals* signals) {
  auto before = take_snapshot(options);
  for (unsigned shown = 0; options.count == 0 || shown < options.count; ++shown) {
    if (const Refusal* refusal = std::get_if<Refusal>(&before)) return *refusal;
    const auto until = next_sample(options);
    for (auto event = Signals::Event::kResized; event != Signals::Event::kTime;) {
      event = signals->wait(until, false);
      if (event == Signals::Event::kEnd) return std::nullopt;
    }
    auto after = take_snapshot(options);
    if (const Refusal* refusal = std::get_if<Refusal>(&after)) return *refusal;
    const Snapshot& now = std::get<Snapshot>(after);
    const json change = rates(std::get<Snapshot>(before).vgpus, now.vgpus);
    if (options.json) {
      fmt::print("{}\n", json_line(now, change));
    } else {
      fmt::print("{}\n\n", fmt::join(top_lines(now.status, change), "\n"));
    }
    std::fflush(stdout);
    before = std::move(after);
  }
  return std::nullopt;
}

// Draws again after each key until then. False: the user ends it.
bool draw_until(std::chrono::steady_clock::time_point until, const std::function<void()>& draw, Signals* signals,
                Screen* screen, TopView* view) {
  draw();
  for (;;) {
    switch (signals->wait(until, screen->has_keys())) {
      case Signals::Event::kTime:
        return true;
      case Signals::Event::kEnd:
        return false;
      case Signals::Event::kResized:
        screen->resize();
        break;
      case Signals::Event::kKey:
        while (const auto press = screen->key()) {
          if (!view->press(*press)) return false;
        }
        break;
    }
    draw();
  }
}

std::optional<Refusal> draw_tables(const Options& options, Signals* signals, Screen* screen) {
  TopView view;
  auto before = take_snapshot(options);
  if (const Refusal* refusal = std::get_if<Refusal>(&before)) return *refusal;
  json change = rates(json::array(), std::get<Snapshot>(before).vgpus);  // something to see at once
  for (unsigned shown = 0;; ++shown) {
    const auto show = [&] {
      screen->show(view.lines(std::get<Snapshot>(before).status, change, screen->rows(), screen->columns()));
    };
    if (options.count > 0 && shown == options.count) return std::nullopt;
    if (!draw_until(next_sample(options), show, signals, screen, &view)) return std::nullopt;
    auto after = take_snapshot(options);
    if (const Refusal* refusal = std::get_if<Refusal>(&after)) return *refusal;
    change = rates(std::get<Snapshot>(before).vgpus, std::get<Snapshot>(after).vgpus);
    before = std::move(after);
  }
}

}  // namespace

int top(const Options& options) {
  std::optional<Refusal> refusal;
  {
    Signals signals;
    const auto screen = options.json ? nullptr : Screen::open();
    refusal = screen ? draw_tables(options, &signals, screen.get()) : print_tables(options, &signals);
  }
  return refusal ? print_refusal(*refusal, options.json) : kOk;
}

}  // namespace bandsaw::ctl
