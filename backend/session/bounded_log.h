// Which part of a session's log is written: what is within bounds in size and rate. Writes by descriptors alone, and
// needs nothing but the C library, because each session has a process that consists of this.
//
// One thread.
#pragma once

#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace bandsaw {

class BoundedLog {
 public:
  // Two open files, which outlive this.
  BoundedLog(int log, int old_log) : log_(log), old_log_(old_log), last_(now()) {
    struct stat found{};
    if (::fstat(log_, &found) == 0) size_ = static_cast<size_t>(found.st_size);
  }

  // False: more came than may be written.
  bool take(std::string_view text) {
    const double at = now();
    left_ = std::min<double>(kBurst, left_ + kPerSecond * (at - last_));
    last_ = at;
    char note[96];
    const auto note_size = static_cast<size_t>(
        dropped_ == 0
            ? 0
            : std::snprintf(note, sizeof note, "[%zu bytes of the log were left out: more than %zu a second]\n",
                            dropped_, kPerSecond));
    size_t fits = text.size();
    if (static_cast<double>(note_size + fits) > left_) {  // whole lines only
      const auto most = static_cast<size_t>(std::max(0.0, left_ - static_cast<double>(note_size)));
      fits = most < kLeast ? 0 : text.substr(0, most).rfind('\n') + 1;
    }
    if (fits > 0) {
      left_ -= static_cast<double>(note_size + fits);
      if (dropped_ > 0) write({note, note_size});
      dropped_ = 0;
      write(text.substr(0, fits));
    }
    dropped_ += text.size() - fits;
    return fits == text.size();
  }

 private:
  static constexpr size_t kFileMax = 8 << 20;                       // bytes, of each of the two files
  static constexpr size_t kBurst = 1 << 20, kPerSecond = 32 << 10;  // bytes
  static constexpr size_t kLeast = 4096;                            // what was left out is not said for less

  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  void write(std::string_view text) {
    if (size_ + text.size() > kFileMax) turn_over();
    size_ += text.size();
    if (::write(log_, text.data(), text.size()) < 0) return;  // the disk is full: nothing is to be done
  }
  // What there is becomes the old log. This process may open no files.
  void turn_over() {
    if (::ftruncate(old_log_, 0) != 0 || ::lseek(old_log_, 0, SEEK_SET) != 0) return;
    off_t from = 0;
    while (::sendfile(old_log_, log_, &from, kFileMax) > 0) continue;
    if (::ftruncate(log_, 0) == 0) size_ = 0;
  }

  const int log_, old_log_;
  double left_ = kBurst, last_;  // bytes, seconds
  size_t size_ = 0, dropped_ = 0;
};

}  // namespace bandsaw
