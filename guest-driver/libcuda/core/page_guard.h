// Who notices when the program touches pages of managed memory that the device has: userfaultfd in direct mode.
//
// Watched pages are either there (the program reads, or reads and writes them) or away. A thread that touches pages
// which are away waits, also inside a system call such as read(2), until they are brought back or given up.
#pragma once

#include <cstdint>
#include <memory>

namespace bandsaw::libcuda {

struct PageTouch {
  uint64_t address = 0;
  bool write = false;
  uint32_t thread = 0;  // its id as the kernel's
};

// Thread-safe. Addresses and lengths are whole pages. Functions that return int return 0 or an errno.
class PageGuard {
 public:
  virtual ~PageGuard() = default;

  // Pages that are there become away: when this returns, no thread reads or writes them any more.
  virtual int take(uint64_t address, uint64_t bytes) = 0;
  // Pages that are away and have been written through another mapping are there again; waiting threads go on. If this
  // kernel cannot keep the program from writing, `*writable` becomes true.
  virtual int give(uint64_t address, uint64_t bytes, bool* writable) = 0;
  // Pages that are there, or were never written, may only be read from now on.
  virtual int protect(uint64_t address, uint64_t bytes) = 0;
  // Pages that could be read only may be written.
  virtual int unlock(uint64_t address, uint64_t bytes) = 0;
  // Nobody watches these pages any more. Threads that wait try again.
  virtual void forget(uint64_t address, uint64_t bytes) = 0;
  // Threads that wait for these pages try again.
  virtual void retry(uint64_t address, uint64_t bytes) = 0;

  // Waits for the next touch of pages that are away (or of read-only pages, to write them). False: none will come.
  virtual bool next(PageTouch* touch) = 0;
};

// For shared mappings of a memory file. nullptr: this process may not have one, or the kernel is too old for it;
// `*why` tells people.
std::unique_ptr<PageGuard> open_userfault_guard(const char** why);

}  // namespace bandsaw::libcuda
