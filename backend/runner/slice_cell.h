// Words in device memory through which a kernel of resident blocks and the runner talk: which block is drawn next, and
// whether to draw no more.
#pragma once

#include <list>
#include <memory>

#include "backend/device/device.h"

namespace bandsaw::runner {

struct SliceCell {
  static constexpr uint64_t kBytes = 256, kStopAt = 128;  // the counter stands at 0; far from it, the flag
  std::weak_ptr<Context> context;
  StreamRef control;                        // of its own: the flag is written beside the kernel
  uint64_t address = 0;                     // of kBytes
  uint32_t* drawn = nullptr;                // where the counter is copied to at the end of a launch
  uint32_t* peeked = nullptr;               // and meanwhile
  std::shared_ptr<void> page, peeked_page;  // hold that

  Copy counter_to(uint32_t* word) const;  // a word of either page
};

// For one thread. Cells in use may outlive it.
class SliceCells {
 public:
  explicit SliceCells(Device* device) : device_(device) {}

  // Null: the device has no room.
  std::shared_ptr<SliceCell> take(const ContextRef& context);
  // Nothing on the device uses it any more.
  void give(std::shared_ptr<SliceCell> cell) { free_.push_back(std::move(cell)); }

 private:
  static constexpr size_t kPageBytes = 4096;

  uint32_t* next_word();

  Device* const device_;
  std::list<std::shared_ptr<SliceCell>> free_;
  std::shared_ptr<void> page_;
  size_t used_ = 0;  // words of page_
};

}  // namespace bandsaw::runner
