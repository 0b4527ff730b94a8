// What work of the device may still run, by stream, so that nobody waits for what somebody has waited for already: a
// program that has synchronised its stream and then touches what a kernel wrote needs no other word of the device.
//
// Work is begun before its record is made and published when the record is in its ring. A wait covers the work that was
// published before it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace bandsaw::managed {

struct WorkStream {
  uint64_t stream = 0, context = 0;
  // A number that means another stream in each context, or in each thread too (0: it does not).
  bool of_context = false;
  uint64_t thread = 0;
  std::tuple<uint64_t, uint64_t, uint64_t> key() const { return {stream, of_context ? context : 0, thread}; }
};

// Work of one stream. Atomic.
class StreamWork {
 public:
  void begin() { begun_.fetch_add(1); }
  void published() { published_.fetch_add(1); }
  bool quiet() const { return ended_.load() == begun_.load(); }

 private:
  friend class WorkTable;
  friend class WorkWait;
  bool last_ = false;  // guarded by the table: no more comes
  std::atomic<uint64_t> begun_{0}, published_{0};
  std::atomic<uint64_t> ended_{0};  // that so many have ended is known
};

// Thread-safe.
class WorkTable {
 public:
  std::shared_ptr<StreamWork> of(const WorkStream& stream);
  // It gets no more work. What it had is forgotten once it is known to have ended.
  void stream_ended(const WorkStream& stream);
  bool quiet(const WorkStream& stream) const;
  bool all_quiet() const;

 private:
  friend class WorkWait;
  struct Less {
    bool operator()(const WorkStream& a, const WorkStream& b) const { return a.key() < b.key(); }
  };
  mutable std::mutex mutex_;
  std::map<WorkStream, std::shared_ptr<StreamWork>, Less> streams_;  // guarded by mutex_
};

// Stands around a wait of a thread for the device.
class WorkWait {
 public:
  // For one stream; for all of a context; for everything.
  WorkWait(WorkTable& table, const WorkStream& stream);
  WorkWait(WorkTable& table, uint64_t context);
  explicit WorkWait(WorkTable& table);
  // The wait has succeeded.
  void succeeded() const;

 private:
  template <typename Wanted>
  WorkWait(WorkTable& table, Wanted wanted, int);
  void add(const std::shared_ptr<StreamWork>& work);
  struct Covered {
    std::shared_ptr<StreamWork> work;
    uint64_t count;
  };
  std::vector<Covered> covered_;
};

}  // namespace bandsaw::managed
