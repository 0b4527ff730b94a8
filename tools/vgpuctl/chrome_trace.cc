#include "tools/vgpuctl/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "memory/base/json.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

constexpr int kRowsMax = 50;  // of one kind on one engine; more time slices than that never overlap

struct TimeSlice {
  size_t vgpu = 0, engine = 0;
  uint64_t process = 0;
  int64_t asked = 0, granted = 0, ended = 0, charged = 0;  // ns
};

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
  Writer(const json& vgpus, const json& engines) : vgpus_(vgpus), engines_(engines) {}

  void slice(const TimeSlice& s) {
    const std::string arguments = fmt::format(
        R"({{"asked_us":{:.3f},"granted_us":{:.3f},"ended_us":{:.3f},"charged_us":{:.3f},"waited_us":{:.3f}}})",
        us(s.asked), us(s.granted), us(s.ended), us(s.charged), us(s.granted - s.asked));
    event(s, false, s.granted, s.ended, fmt::format("process {}", s.process), arguments);
    if (s.granted > s.asked) event(s, true, s.asked, s.granted, fmt::format("process {} waits", s.process), arguments);
  }

  std::string finish(const json& taken) {
    for (size_t vgpu = 0; vgpu < vgpus_.size(); ++vgpu) {
      name_of("process_name", vgpu, 0, "vGPU " + vgpus_[vgpu].get<std::string>());
    }
    for (const auto& [key, rows] : rows_) {
      const auto& [vgpu, engine, waits] = key;
      std::string name = engines_[engine].get<std::string>();
      std::replace(name.begin(), name.end(), '_', ' ');
      if (waits) name += " queue";
      for (int row = 0; row < rows.count(); ++row) {
        name_of("thread_name", vgpu, thread(engine, waits, row), row ? fmt::format("{} {}", name, row + 1) : name);
        add(fmt::format(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
                        vgpu + 1, thread(engine, waits, row), thread(engine, waits, row)));
      }
    }
    return fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"clock":"CLOCK_MONOTONIC","base_ns":{},)"
                       R"("lost_time_slices":{}}},)",
                       taken.value("base_ns", int64_t{0}), taken.value("lost", uint64_t{0})) +
           "\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  static int thread(size_t engine, bool waits, int row) {
    return static_cast<int>(engine) * 2 * kRowsMax + (waits ? kRowsMax : 0) + row + 1;
  }
  void add(const std::string& text) {
    if (!events_.empty()) events_ += ",\n";
    events_ += text;
  }
  void event(const TimeSlice& s, bool waits, int64_t begin, int64_t end, const std::string& name,
             const std::string& arguments) {
    const int row = rows_[{s.vgpu, s.engine, waits}].place(begin, end);
    add(fmt::format(R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{}}})",
                    json_text(json(name)), json_text(engines_[s.engine]), s.vgpu + 1, thread(s.engine, waits, row),
                    us(begin), us(std::max<int64_t>(0, end - begin)), arguments));
  }
  void name_of(const char* what, size_t vgpu, int thread, const std::string& name) {
    add(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, vgpu + 1, thread,
                    json_text(json(name))));
  }

  const json &vgpus_, &engines_;
  std::map<std::tuple<size_t, size_t, bool>, Rows> rows_;
  std::string events_;
};

}  // namespace

std::string chrome_trace(const json& taken) {
  const json vgpus = taken.value("vgpus", json::array()), engines = taken.value("engines", json::array());
  std::vector<TimeSlice> slices;
  for (const json& r : taken.value("records", json::array())) {
    if (r.size() != 7 || r[0] >= vgpus.size() || r[2] >= engines.size()) continue;
    slices.push_back({r[0], r[2], r[1], r[3], r[4], r[5], r[6]});
  }
  std::sort(slices.begin(), slices.end(), [](const TimeSlice& a, const TimeSlice& b) { return a.granted < b.granted; });
  Writer writer(vgpus, engines);
  for (const TimeSlice& slice : slices) writer.slice(slice);
  return writer.finish(taken);
}

}  // namespace bandsaw::ctl
