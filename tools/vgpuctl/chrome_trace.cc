#include "tools/vgpuctl/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "memory/base/json.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

constexpr int kRowsMax = 50;  // of one kind on one engine; more time slices than that never overlap
constexpr int64_t kAllProcesses = -1;

struct TimeSlice {
  size_t vgpu = 0, engine = 0;
  int64_t process = 0;
  int64_t asked = 0, granted = 0, ended = 0, charged = 0;  // ns
};

enum Kind { kWork, kQueue, kOpen };  // rows of an engine
constexpr int kKinds = 3;

// Of one virtual GPU, engine and kind. Viewers want the time slices of a row apart or nested, so overlapping ones get
// rows of their own.
class Rows {
 public:
  int place(int64_t begin, int64_t end) {
    for (size_t i = 0; i < ends_.size(); ++i) {
      if (ends_[i] > begin && i + 1 < kRowsMax) continue;
      ends_[i] = std::max(ends_[i], end);
      return static_cast<int>(i);
    }
    ends_.push_back(end);
    return static_cast<int>(ends_.size()) - 1;
  }
  int count() const { return static_cast<int>(ends_.size()); }

 private:
  std::vector<int64_t> ends_;
};

double us(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

class Writer {
 public:
  Writer(const json& vgpus, const json& engines, const ProcessNames& names)
      : vgpus_(vgpus), engines_(engines), names_(names) {}

  void slice(const TimeSlice& s) {
    const std::string arguments = fmt::format(
        R"({{"asked_us":{:.3f},"granted_us":{:.3f},"ended_us":{:.3f},"charged_us":{:.3f},"waited_us":{:.3f}}})",
        us(s.asked), us(s.granted), us(s.ended), us(s.charged), us(s.granted - s.asked));
    counter(s);
    if (s.process == kAllProcesses) {
      event(s, kOpen, s.granted, s.ended, "open", arguments);
      return;
    }
    const std::string name = name_of_process(s);
    const int row = event(s, kWork, s.granted, s.ended, name, arguments);
    if (s.granted <= s.asked) return;
    const int from = event(s, kQueue, s.asked, s.granted, name + " waits", arguments);
    arrow(s, "s", from, s.asked);
    arrow(s, "f", row, s.granted);
    ++arrows_;
  }

  std::string finish(const json& taken) {
    for (size_t vgpu = 0; vgpu < vgpus_.size(); ++vgpu) {
      name_of("process_name", vgpu, 0, "vGPU " + vgpus_[vgpu].get<std::string>());
    }
    for (const auto& [key, rows] : rows_) {
      const auto& [vgpu, engine, kind] = key;
      static constexpr const char* kSuffixes[kKinds] = {"", " queue", " gate"};
      const std::string name = engine_name(engine) + kSuffixes[kind];
      for (int row = 0; row < rows.count(); ++row) {
        name_of("thread_name", vgpu, thread(engine, kind, row), row ? fmt::format("{} {}", name, row + 1) : name);
        add(fmt::format(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
                        vgpu + 1, thread(engine, kind, row), thread(engine, kind, row)));
      }
    }
    return fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"clock":"CLOCK_MONOTONIC","base_ns":{},)"
                       R"("lost_time_slices":{}}},)",
                       taken.value("base_ns", int64_t{0}), taken.value("lost", uint64_t{0})) +
           "\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  static int thread(size_t engine, Kind kind, int row) {
    return (static_cast<int>(engine) * kKinds + kind) * kRowsMax + row + 1;
  }
  std::string engine_name(size_t engine) const {
    std::string name = engines_[engine].get<std::string>();
    std::replace(name.begin(), name.end(), '_', ' ');
    return name;
  }
  std::string name_of_process(const TimeSlice& s) const {
    const auto found = names_.find({vgpus_[s.vgpu].get<std::string>(), s.process});
    return found == names_.end() ? fmt::format("process in slot {}", s.process) : found->second;
  }
  void add(const std::string& text) {
    if (!events_.empty()) events_ += ",\n";
    events_ += text;
  }
  // Its thread.
  int event(const TimeSlice& s, Kind kind, int64_t begin, int64_t end, const std::string& name,
            const std::string& arguments) {
    const int row = thread(s.engine, kind, rows_[{s.vgpu, s.engine, kind}].place(begin, end));
    add(fmt::format(R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{}}})",
                    json_text(json(name)), json_text(engines_[s.engine]), s.vgpu + 1, row, us(begin),
                    us(std::max<int64_t>(0, end - begin)), arguments));
    return row;
  }
  void arrow(const TimeSlice& s, const char* phase, int row, int64_t at) {
    add(fmt::format(R"({{"ph":"{}","bp":"e","id":{},"name":"granted","cat":"wait","pid":{},"tid":{},"ts":{:.3f}}})",
                    phase, arrows_, s.vgpu + 1, row, us(at)));
  }
  // From its begin to its end. Where the next follows at once, that one's is the later event.
  void counter(const TimeSlice& s) {
    const int64_t took = s.ended - s.granted;
    if (took <= 0) return;
    const double percent = 100 * std::min(1.0, static_cast<double>(s.charged) / static_cast<double>(took));
    for (const auto& [at, value] : {std::pair{s.granted, percent}, std::pair{s.ended, 0.0}}) {
      add(fmt::format(R"({{"ph":"C","name":{},"pid":{},"ts":{:.3f},"args":{{"percent":{:.1f}}}}})",
                      json_text(json(engine_name(s.engine) + " use")), s.vgpu + 1, us(at), value));
    }
  }
  void name_of(const char* what, size_t vgpu, int row, const std::string& name) {
    add(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, vgpu + 1, row,
                    json_text(json(name))));
  }

  const json &vgpus_, &engines_;
  const ProcessNames& names_;
  std::map<std::tuple<size_t, size_t, Kind>, Rows> rows_;
  std::string events_;
  uint64_t arrows_ = 0;
};

}  // namespace

void add_names(const json& views, ProcessNames* names) {
  for (const json& view : views) {
    const json live = view.value("live", json());
    if (!live.is_object()) continue;
    for (const json& process : live.value("processes", json::array())) {
      if (!process.contains("slot")) continue;
      (*names)[{view.value("name", ""), process["slot"].get<int64_t>()}] =
          fmt::format("{} ({})", process.value("comm", "process"), process.value("pid", int64_t{0}));
    }
  }
}

std::string chrome_trace(const json& taken, const ProcessNames& names) {
  const json vgpus = taken.value("vgpus", json::array()), engines = taken.value("engines", json::array());
  std::vector<TimeSlice> slices;
  for (const json& r : taken.value("records", json::array())) {
    if (r.size() != 7 || r[0] >= vgpus.size() || r[2] >= engines.size()) continue;
    slices.push_back({r[0], r[2], r[1], r[3], r[4], r[5], r[6]});
  }
  std::sort(slices.begin(), slices.end(), [](const TimeSlice& a, const TimeSlice& b) { return a.granted < b.granted; });
  Writer writer(vgpus, engines, names);
  for (const TimeSlice& slice : slices) writer.slice(slice);
  return writer.finish(taken);
}

}  // namespace bandsaw::ctl
