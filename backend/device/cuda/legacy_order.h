// Who waits for whom between a context's legacy stream and those that were made to wait for it. A plain context keeps
// that order by itself, a green one does not: all its streams are as if they had been made non-blocking.
//
// What is put on the legacy stream comes after all that was put on the blocking ones, and what is put on these
// afterwards comes after it (CUDA driver API, "Stream synchronization behavior"). While a program uses one stream only,
// this costs nothing.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "backend/device/cuda/driver.h"

namespace bandsaw::cuda {

// Thread-safe. Its context is current in whoever calls.
class LegacyOrder {
 public:
  struct Blocking {  // a stream
    const CUstream handle;
    CUevent end = nullptr;  // this and the following are guarded by the order's mutex
    bool used = false;      // since the legacy stream waited for it last
    uint64_t seen = 0;      // work of the legacy stream that it waits for
  };

  explicit LegacyOrder(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {}

  std::shared_ptr<Blocking> add(CUstream stream);
  // Before the stream is destroyed.
  void remove(Blocking& stream);
  // Before something is put on a stream, which does not capture.
  CUresult before(Blocking& stream);
  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: a blocking stream captures, which is only looked for if some stream does.
  CUresult before_legacy(bool some_capture);
  // The same before the legacy stream is only asked or waited for.
  CUresult legacy_waits(bool some_capture);
  // Gives back what it has of the driver's; nothing may follow.
  void clear();

 private:
  CUresult record(CUevent* end, CUstream stream);
  CUresult legacy_after(Blocking& stream);
  CUresult legacy_after_all(bool some_capture);

  const std::shared_ptr<const Driver> driver_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Blocking>> streams_;  // guarded by mutex_, like all that follows
  size_t used_ = 0;                                 // of these
  uint64_t given_ = 0, recorded_ = 0;               // to the legacy stream; of that, what legacy_end_ is the end of
  CUevent legacy_end_ = nullptr;
};

}  // namespace bandsaw::cuda
