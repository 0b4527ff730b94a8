// Keeps other threads from writing to private or shared pages of memory while their content moves to other pages, which
// are then mapped in their place: who writes waits.
#pragma once

#include <signal.h>

#include <cstdint>

namespace bandsaw::libcuda {

class WriteStop {
 public:
  // Whole pages. Where this process may not have that (userfaultfd(2)), or these are a file's, nothing is stopped. The
  // calling thread gets no signals while this stands; it must not write there, nor take a lock that others may hold.
  WriteStop(uint64_t address, uint64_t bytes);
  // Who has waited writes to what lies there now.
  ~WriteStop();
  WriteStop(const WriteStop&) = delete;
  WriteStop& operator=(const WriteStop&) = delete;

 private:
  bool stop() const;

  const uint64_t address_, bytes_;
  int descriptor_ = -1;
  sigset_t signals_{};  // that were blocked before
};

}  // namespace bandsaw::libcuda
