#include "guest-driver/cupti/buffers.h"

#include <cstring>
#include <utility>

namespace bandsaw::cupti {

// Leaked: records are written until the process is gone.
Buffers& Buffers::get() {
  static auto* const made = new Buffers;
  return *made;
}

void Buffers::use(CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed) {
  std::lock_guard lock(mutex_);
  requested_ = requested;
  completed_ = completed;
}

bool Buffers::ready() const {
  std::lock_guard lock(mutex_);
  return requested_ != nullptr;
}

void Buffers::complete(const Buffer& buffer) {
  if (buffer.data) completed_.load()(nullptr, 0, buffer.data, buffer.size, buffer.used);
}

void Buffers::put(const void* record, size_t bytes) {
  Buffer full;
  {
    std::lock_guard lock(mutex_);
    if (!requested_) {
      dropped_++;
      return;
    }
    if (!open_.fits(bytes)) {
      full = std::exchange(open_, {});
      requested_(&open_.data, &open_.size, &open_.most);
    }
    if (open_.fits(bytes)) {
      std::memcpy(open_.data + open_.used, record, bytes);
      open_.used += bytes;
      open_.records++;
    } else {
      dropped_++;
    }
  }
  complete(full);
}

void Buffers::flush() {
  Buffer full;
  {
    std::lock_guard lock(mutex_);
    full = std::exchange(open_, {});
  }
  complete(full);
}

}  // namespace bandsaw::cupti
