// Calls of kernels on their way through the co-scheduler, and which of their blocks are issued, in flight and done.
//
// A call waits until its stream's earlier copies and kernels are done, is then ready, and is over when all its blocks
// are done. Blocks go out in linear order, each once. Bounded: kMaxCalls. Calls from one thread at a time; errors leave
// everything as it was.
// Source: Kernelet, sections 2.2 (states of a kernel) and 3.2 (waiting and ready queue).
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "vgpu-sched/slice/planner.h"
#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

inline constexpr std::size_t kMaxCalls = 1 << 16;

struct Call {
  KernelId id = 0;
  StreamId stream = 0;
  ShapeId shape = kNoShape;  // kNoShape: not known yet; runs, but no planner cuts it beside another
  Blocks blocks = 0;
  Blocks minimum = 0;  // the least grid slice (tuner.h); 0: may not be sliced
  bool copied = true;  // no earlier copy of its stream is under way
  bool alone = false;  // it is measured: nothing is planned beside it
};

struct Range {
  Blocks first = 0;
  Blocks blocks = 0;
};

class Queues {
 public:
  [[nodiscard]] Error arrival(const Call& call, Time now);
  // All copies of the stream that come before this call are done.
  [[nodiscard]] Error copies_done(KernelId id, Time now);
  // `done` blocks of it are known to be done, though their grid slice is in flight. A number below the last one is
  // ignored.
  [[nodiscard]] Error progress(KernelId id, Blocks done);
  // The grid slice that begins with this block. `over`: it was the last, and the call is gone. `blocks`: the grid
  // slice's.
  [[nodiscard]] Error grid_slice_done(KernelId id, Blocks first, Time now, bool* over, Blocks* blocks = nullptr);
  // The call is taken back, whatever it has in flight: nobody waits for that any longer.
  [[nodiscard]] Error departure(KernelId id, Time now);

  // The next blocks of a ready call, at most so many; none when it has none left.
  Range take(KernelId id, Blocks most);
  // Residency in force for a ready call.
  void set_resident(KernelId id, int resident);
  int resident(KernelId id) const;

  const std::vector<ReadyKernel>& ready() const { return ready_; }
  const ReadyKernel* find_ready(KernelId id) const;
  std::size_t waiting() const { return calls_.size() - ready_.size(); }
  // Counts arrivals among the ready ones, departures and last blocks issued: what a plan depends on.
  std::uint64_t changes() const { return changes_; }

 private:
  struct Record {
    Call call;
    bool ready = false;
    int resident = 0;
    Blocks done_in_slices = 0;  // blocks of grid slices that are done
    std::vector<Range> in_flight;
  };

  ReadyKernel* ready_of(KernelId id);
  void release(StreamId stream, Time now);
  void erase(KernelId id, Time now);

  std::unordered_map<KernelId, Record> calls_;
  std::unordered_map<StreamId, std::deque<KernelId>> streams_;  // those which have calls
  std::vector<ReadyKernel> ready_;                              // at most one of each stream
  std::uint64_t changes_ = 0;
};

}  // namespace bandsaw::slice
