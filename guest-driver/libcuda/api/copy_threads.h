// Large copies between the program's memory and staging memory, by several threads: one core moves some 10 GB/s, a
// GPU's link five times that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace bandsaw::libcuda {

// Thread-safe. Its threads live as long as the process. They cannot be joined at its end, because nothing tells when
// that has begun; so the object is never destroyed.
class CopyThreads {
 public:
  // For this machine: a quarter of its cores, at most three.
  static CopyThreads& get();
  explicit CopyThreads(unsigned helpers) : helpers_(helpers) {}
  CopyThreads(const CopyThreads&) = delete;

  // As memcpy. `streaming`: past the caches, for a target that is not read soon. One caller at a time is helped; others
  // copy alone.
  void copy(void* to, const void* from, size_t bytes, bool streaming);
  // Other work on a range of bytes, cut into parts of whole units: `work(about, offset, bytes)` for each.
  using Work = void (*)(const void* about, size_t offset, size_t bytes);
  void share(size_t bytes, size_t unit, Work work, const void* about);

 private:
  // Work cut into as many parts as there are threads for it.
  struct Job {
    Work work = nullptr;
    const void* about = nullptr;
    size_t bytes = 0, part = 0;
    void run(unsigned index) const;
  };

  void start();
  void help(unsigned index);

  const unsigned helpers_;
  std::mutex mutex_;      // one copy at a time
  bool started_ = false;  // guarded by mutex_
  Job job_;               // written with mutex_ held, read by helpers between a round's beginning and its end
  std::atomic<uint32_t> round_{0}, left_{0};
};

}  // namespace bandsaw::libcuda
