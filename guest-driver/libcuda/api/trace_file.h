// A file in the Trace Event Format (JSON array form), which Perfetto and chrome://tracing open. The array may lack its
// end, so what a killed program leaves is readable too.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace bandsaw::libcuda {

// Thread-safe. Times are nanoseconds of CLOCK_MONOTONIC.
class TraceFile {
 public:
  // `path` may have %p, which becomes the process id. False: it cannot be written, and errno says why.
  bool open(const std::string& path);
  // Also false in a forked child, which leaves its parent's file alone.
  bool is_open() const;

  // A span of a host thread. `id`, if not 0, is where the arrow to the device's span begins.
  void call(const char* name, uint64_t begin_ns, uint64_t end_ns, uint64_t id);
  // A span of a stream of the device; `bytes` 0: none to show.
  void work(uint64_t stream, const std::string& name, uint64_t begin_ns, uint64_t end_ns, uint64_t id, uint64_t bytes);
  // What tells a reader that something is not in the file.
  void note(const std::string& text, uint64_t at_ns);
  void flush();
  void close();

 private:
  // All with the mutex held.
  void line(const std::string& json);
  void write_out();
  void name_row(uint64_t row, const std::string& name);
  uint64_t row_of_stream(uint64_t stream);

  std::mutex mutex_;
  int file_ = -1;
  int pid_ = 0;
  std::string text_;  // not yet written
  bool first_ = true;
  std::map<uint64_t, uint64_t> stream_rows_;  // stream -> its row's number
  std::map<uint64_t, bool> named_;
};

}  // namespace bandsaw::libcuda
