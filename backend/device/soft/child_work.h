// What the threads of a grid ask of the device runtime: launches, copies and fills that follow the grid, in the order
// of its own streams and events.
//
// All of it begins when the grid's blocks have ended, which CUDA allows: a parent cannot wait for its children. The
// grid is complete when they are, and then its tail launches, one after another.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "backend/device/soft/block.h"
#include "backend/device/soft/context.h"
#include "backend/device/soft/module.h"

namespace bandsaw::soft {

class SoftDevice;

// Of a kernel launched by kernels, as CUDA limits it. A tail launch is as deep as its parent, which it replaces.
inline constexpr uint32_t kDeepestLaunch = 24;

struct ChildItem {
  NodeContent content;          // a launch, copy or fill
  std::vector<uint32_t> after;  // earlier items
};

// Thread-safe until the grid has ended; then its items are taken.
class ChildWork {
 public:
  // What is said of the parent outlives this.
  ChildWork(SoftDevice& device, const LaunchPlan& parent);
  ~ChildWork();
  ChildWork(const ChildWork&) = delete;
  ChildWork& operator=(const ChildWork&) = delete;

  // One thread's call; `block` and `thread` are its numbers in the grid and the block.
  void call(uint64_t block, uint32_t thread, DeviceCall call, const uint64_t* words, DeviceAnswer* answer);

  // Items in order; each follows those that it names. Tail launches follow all of the others, and each other.
  std::vector<ChildItem> items, tail;

 private:
  struct Shape {
    uint32_t grid[3], block[3], shared_bytes;
  };
  struct Buffer {
    uint64_t bytes = 0;  // that its place takes
    FunctionRef function;
    Shape shape{};
  };
  // CUDA's runtime errors, by number, as device code sees them.
  enum Error : uint32_t {
    kOk = 0,
    kInvalidValue = 1,
    kNoMemory = 2,
    kInvalidConfiguration = 9,
    kMaxDepth = 65,
    kTooMany = 69,
    kInvalidFunction = 98,
    kInvalidHandle = 400,
  };

  Error answer(uint64_t block, uint32_t thread, DeviceCall call, const uint64_t* words, DeviceAnswer* answer);
  Error question(DeviceCall call, const uint64_t* words, DeviceAnswer* answer);
  Error make_handle(bool stream, const uint64_t* words, DeviceAnswer* answer);
  Error order(uint64_t block, DeviceCall call, const uint64_t* words);
  Error launch(uint64_t block, uint64_t stream, uint64_t address, const FunctionRef& function, const Shape* shape);
  Error copy(uint64_t block, DeviceCall call, const uint64_t* words);
  Error fill(uint64_t block, DeviceCall call, const uint64_t* words);
  Error append(uint64_t block, uint64_t stream, NodeContent content);
  Error chain_of(uint64_t block, uint64_t stream, uint64_t* chain) const;
  FunctionRef function_at(uint64_t address);
  bool charge(uint64_t bytes);
  uint64_t take_place(uint64_t bytes);
  Error function_attributes(uint64_t address, DeviceAnswer* answer);
  Error occupancy(const uint64_t* words, DeviceAnswer* answer);

  SoftDevice& device_;
  const LaunchPlan& parent_;
  std::mutex mutex_;  // guards all below
  std::map<uint64_t, FunctionRef> functions_;
  std::map<uint64_t, Buffer> buffers_;                // given out, by address
  std::map<uint64_t, std::vector<uint64_t>> unused_;  // places of buffers, by size
  uint64_t place_ = 0, place_left_ = 0;               // of the last piece of memory for buffers
  std::map<uint64_t, std::vector<uint32_t>> chains_;  // what the next item of a stream follows; by stream, or block
  std::set<uint64_t> streams_;
  std::map<uint64_t, std::vector<uint32_t>> events_;  // what a wait for it follows
  std::map<uint64_t, Error> errors_;                  // the last one of a thread
  uint64_t next_handle_ = 0;
  uint64_t taken_ = 0;  // bytes of items and buffers, about
  Charge<DeviceHost> share_;
};

}  // namespace bandsaw::soft
