// Two threads of the arbiter for what the driver takes its time with: setting time slices, and closing descriptors
// whose contexts the driver then frees. The arbiter's own thread waits for neither.
//
// Threads: any. Nothing waits for the driver but the destructor, which waits for the calls under way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/vgpud/arbiter/channel_groups.h"

namespace bandsaw {

class TimeSliceSetter {
 public:
  using Target = std::shared_ptr<const TimeSliced>;
  // An order could not be carried out; it is not tried again. On a thread of this, without a lock.
  using Failed = std::function<void(const TimeSliceOrder& order, const Target& target, const Status& why)>;

  // A check found a longer time slice than was ordered, and has put it right. As above.
  using Changed = std::function<void(const TimeSliceOrder& order, const Target& target, uint64_t had_us)>;

  TimeSliceSetter(Failed failed, Changed changed);
  ~TimeSliceSetter();
  TimeSliceSetter(const TimeSliceSetter&) = delete;

  // Replaces an order for the same slot that has not begun; a check replaces none.
  void set(TimeSliceOrder order, Target target);
  // Forgets the orders for it and lets go of it, soon.
  void release(Target target);
  // `owner` is held until they are closed.
  void close(std::vector<UniqueFd> descriptors, std::shared_ptr<const void> owner);

 private:
  using Key = std::pair<std::string, uint32_t>;
  struct Order {
    uint32_t microseconds = 0;
    bool check = false;
    Target target;
  };
  void leave(std::shared_ptr<const void> thing);
  Status carry_out(const TimeSliceOrder& order, const Target& target) const;
  Status put_right(const TimeSliceOrder& order, const Target& target) const;
  void set_all();
  void release_all();

  const Failed failed_;
  const Changed changed_;
  std::mutex mutex_;
  std::condition_variable ordered_, released_;
  std::deque<Key> turns_;  // guarded by mutex_, as the rest; each slot that has an order, once
  std::map<Key, Order> orders_;
  std::vector<std::shared_ptr<const void>> leaving_;
  bool stop_ = false;
  std::thread setting_, releasing_;
};

}  // namespace bandsaw
