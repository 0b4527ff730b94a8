// Traces: who had which engine when, for people and for Perfetto.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "backend/vgpud/api/api.h"
#include "backend/vgpud/api/api_answers.h"
#include "backend/vgpud/api/shares.h"
#include "memory/base/json.h"

namespace bandsaw {

using api::refuse;
using nlohmann::json;
using std::chrono::steady_clock;

namespace {

constexpr int64_t kTraceSecondsMax = 600;
constexpr std::chrono::seconds kGrace{60};      // who does not fetch a trace by then has gone
constexpr size_t kTraceBytesMax = 12u << 20;    // of an answer; clients take 16 MiB
constexpr size_t kRecordBytesMax = 7 * 21 + 2;  // of one record as text

size_t index_of(const std::string& name, std::vector<std::string>* names) {
  const auto found = std::find(names->begin(), names->end(), name);
  if (found != names->end()) return static_cast<size_t>(found - names->begin());
  names->push_back(name);
  return names->size() - 1;
}

// Records as rows of numbers, times counted from the first: a trace has many.
std::string trace_text(const std::vector<TimeSliceRecord>& records, uint64_t lost) {
  int64_t base = INT64_MAX;
  for (const TimeSliceRecord& r : records) base = std::min(base, r.asked > 0 ? r.asked : r.granted);
  if (records.empty()) base = 0;
  std::vector<std::string> names;
  std::string rows;
  for (size_t i = 0; i < records.size(); ++i) {
    const TimeSliceRecord& r = records[i];
    if (rows.size() + kRecordBytesMax > kTraceBytesMax) {
      lost += records.size() - i;
      break;
    }
    const int64_t asked = r.asked > 0 ? r.asked : r.granted;
    fmt::format_to(std::back_inserter(rows), "{}[{},{},{},{},{},{},{}]", i ? "," : "", index_of(r.vgpu, &names),
                   r.process, static_cast<int>(r.engine), asked - base, r.granted - base, r.ended - base, r.charged);
  }
  return fmt::format(R"({{"base_ns":{},"lost":{},"vgpus":{},"engines":{},"records":[{}]}})", base, lost,
                     json_text(json(names)), json_text(json(kEngineNames)), rows) +
         "\n";
}

// Of all devices, one after the other: the name of a virtual GPU says which it is.
std::vector<TimeSliceRecord> take_all(const Gpus& gpus, uint64_t* lost) {
  std::vector<TimeSliceRecord> result;
  for (const Gpu& gpu : gpus.all()) {
    uint64_t lost_here = 0;
    std::vector<TimeSliceRecord> records = gpu.arbiter->take_trace(&lost_here);
    *lost += lost_here;
    result.insert(result.end(), std::make_move_iterator(records.begin()), std::make_move_iterator(records.end()));
  }
  return result;
}

}  // namespace

void Api::start_trace(const json& body, const Answer& answer) {
  const json seconds = body.is_object() ? body.value("seconds", json()) : json();
  if (!seconds.is_number() || seconds.get<double>() <= 0 || seconds.get<double>() > kTraceSecondsMax) {
    return refuse(answer, 400, fmt::format("'seconds' must be a number up to {}", kTraceSecondsMax),
                  "see `vgpuctl trace --help`");
  }
  if (trace_ && steady_clock::now() < trace_until_) {
    return refuse(answer, 409, "a trace is being recorded already", "wait for its end, then try again");
  }
  if (trace_) {  // of a client that has gone
    uint64_t lost = 0;
    (void)take_all(*gpus_, &lost);
  }
  trace_ = ++traces_;
  trace_until_ =
      steady_clock::now() +
      std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds.get<double>())) + kGrace;
  for (const Gpu& gpu : gpus_->all()) gpu.arbiter->start_trace();
  api::send(answer, 200, {{"trace", trace_}});
}

void Api::take_trace(const json& body, const Answer& answer) {
  const json id = body.is_object() ? body.value("trace", json()) : json();
  if (!trace_ || !id.is_number_unsigned() || id.get<uint64_t>() != trace_) {
    return refuse(answer, 409, "no such trace is being recorded", "start one with `vgpuctl trace`");
  }
  trace_ = 0;
  uint64_t lost = 0;
  const std::vector<TimeSliceRecord> records = take_all(*gpus_, &lost);
  answer({.code = 200, .body = trace_text(records, lost)});
}

}  // namespace bandsaw
