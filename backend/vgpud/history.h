// What each virtual GPU used and was promised in each hour, for bills: STATE/history, kept for 31 days.
//
// Sessions count what their programs use, so that what happened while vgpud was away is found when it is back, in the
// hour in which it comes back; what was promised is counted while vgpud looks.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "memory/base/status.h"

namespace bandsaw {

struct HistoryHour {
  double observed_s = 0;  // time that vgpud saw the virtual GPU exist
  double compute_s = 0, copy_s = 0;
  double promised_compute_s = 0, promised_copy_s = 0;  // share x observed time; of copies for both engines
  double memory_byte_s = 0, promised_memory_byte_s = 0;
  uint64_t memory_most = 0;  // bytes, as far as was seen
  uint64_t launches = 0;
  void add(const HistoryHour& other);
};

class History {
 public:
  // A file that cannot be understood is set aside, with a line in the log: bills are no reason not to start.
  static History open(const std::string& directory);
  // `view`: as GET /v1/vgpus/NAME answers it. `now_s`: of the clock on the wall, by which hours are told.
  void sample(const nlohmann::json& view, int64_t now_s, int64_t monotonic_ns);
  // Of the hours that end after `from_s`; no hours: it was never seen.
  nlohmann::json report(const std::string& name, int64_t from_s, int64_t now_s) const;
  // Replaces the file, without what is too old or too much.
  Status save(int64_t now_s);

 private:
  // What was promised and a session's counters, when they were read last.
  struct Seen {
    double compute = 0, copy = 0;  // shares, 0 to 1
    uint64_t memory = 0;
    int64_t session = 0;  // its process
    int64_t at_ns = 0;    // 0: by an earlier vgpud
    uint64_t compute_ns = 0, copy_ns = 0, launches = 0;
    uint64_t used_compute_ns = 0, used_copy_ns = 0;  // by this vgpud's account
  };
  explicit History(std::string directory) : directory_(std::move(directory)) {}
  std::string path() const { return directory_ + "/history"; }
  Status load();
  void forget(int64_t now_s);

  std::string directory_;
  std::map<std::pair<std::string, int64_t>, HistoryHour> hours_;  // by name and the second in which the hour began
  std::map<std::string, Seen> seen_;
};

}  // namespace bandsaw
