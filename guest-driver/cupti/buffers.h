// The program's buffers, which records go into.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace bandsaw::cupti {

// Thread-safe. The program's functions own the buffers' memory; `completed` is called without a lock, `requested` with
// this class's, so it may not call CUPTI.
class Buffers {
 public:
  static Buffers& get();

  void use(CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed);
  bool ready() const;
  // A record of a whole number of 8 bytes. If no buffer has room, it is dropped and counted.
  void put(const void* record, size_t bytes);
  // Gives the buffer that is being filled to the program.
  void flush();
  size_t take_dropped() { return dropped_.exchange(0); }
  void drop(size_t records) { dropped_ += records; }

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    size_t size = 0, used = 0, records = 0, most = 0;  // most 0: as many as fit
    bool fits(size_t bytes) const { return data && size - used >= bytes && (most == 0 || records < most); }
  };
  void complete(const Buffer& buffer);

  mutable std::mutex mutex_;
  CUpti_BuffersCallbackRequestFunc requested_ = nullptr;
  std::atomic<CUpti_BuffersCallbackCompleteFunc> completed_{nullptr};
  Buffer open_;
  std::atomic<size_t> dropped_{0};
};

}  // namespace bandsaw::cupti
