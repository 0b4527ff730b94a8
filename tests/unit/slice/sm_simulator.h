// One virtual SM, warp by warp and access by access, in virtual time: what the chain of warps (chain.h) is held
// against. Ready warps are issued in the order in which they became ready. Accesses are served in order, each for as
// long as its own size takes of the bandwidth.
#pragma once

#include <algorithm>
#include <functional>
#include <queue>
#include <random>
#include <vector>

namespace bandsaw::slice {

// A kernel's warps, by their instructions.
struct SmKernel {
  double delay = 0;      // cycles that nobody lengthens, the mean of an exponential time
  double coalesced = 0;  // part of the instructions that are such an access
  double scattered = 0;
  double coalesced_cycles = 1;  // of the bandwidth, for one of them
  double scattered_cycles = 8;
};

// Two kernels with so many warps each. Instructions per cycle of each, over `cycles`.
class SmSimulator {
 public:
  SmSimulator(const SmKernel& a, int warps_a, const SmKernel& b, int warps_b) : kernels_{a, b} {
    for (int i = 0; i < warps_a + warps_b; ++i) push({0, i < warps_a ? 0 : 1, kReady});
  }

  std::pair<double, double> run(double cycles) {
    double issued[2]{};
    while (!events_.empty() && events_.top().at < cycles) {
      const Event event = events_.top();
      events_.pop();
      const SmKernel& kernel = kernels_[event.kernel];
      if (event.what == kReady) {
        slot_free_ = std::max(slot_free_, event.at) + 1;
        issued[event.kernel] += 1;
        push({slot_free_ + exponential(kernel.delay), event.kernel, kAccess});
        continue;
      }
      const double draw = std::uniform_real_distribution<>(0, 1)(random_);
      double size = 0;
      if (draw < kernel.coalesced + kernel.scattered)
        size = draw < kernel.coalesced ? kernel.coalesced_cycles : kernel.scattered_cycles;
      if (size > 0) memory_free_ = std::max(memory_free_, event.at) + size;
      push({size > 0 ? memory_free_ : event.at, event.kernel, kReady});
    }
    return {issued[0] / cycles, issued[1] / cycles};
  }

 private:
  enum What { kReady, kAccess };
  struct Event {
    double at;
    int kernel;
    What what;
    bool operator>(const Event& other) const { return at > other.at; }
  };

  void push(const Event& event) { events_.push(event); }
  double exponential(double mean) { return mean > 0 ? std::exponential_distribution<>(1 / mean)(random_) : 0; }

  SmKernel kernels_[2];
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::mt19937_64 random_{7};
  double slot_free_ = 0, memory_free_ = 0;
};

}  // namespace bandsaw::slice
