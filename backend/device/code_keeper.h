// Keeps compiled code on disk for a process that may not write there itself.
#pragma once

#include <cstdint>
#include <string>

namespace bandsaw {

class CodeKeeper {
 public:
  virtual ~CodeKeeper() = default;
  // What the file (a memfd, borrowed) holds becomes KEY.o in the folder, soon and perhaps. Any thread.
  virtual void keep(const std::string& key, int file, uint64_t bytes) = 0;
  // That file was read: what is used stays longest. Any thread.
  virtual void used(const std::string& key) = 0;
};

}  // namespace bandsaw
