// The calls that have made what a guest process has, so that another process can make them again: the same handles, the
// same addresses. What has gone by now is dropped, sooner or later.
//
// Only calls that journal.cc lists are noted. Whoever saves finds out what is left over: a handle, or memory, that no
// noted call was given.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backend/device/given.h"
#include "guest-driver/uapi/wire_server.h"

namespace bandsaw::runner {

struct JournalEntry {
  std::vector<std::byte> record;  // as it was executed
  std::vector<uint64_t> given;    // handles and addresses
  Given::Bytes code;              // that it has read; null: none
  bool loads = false;             // it only loads the kernel's code into the context, as its first launch has
  uint64_t value = 0;             // Given::value()
};

// Whether calls of this kind are noted.
bool is_noted(wire::Opcode opcode);

// Thread-safe.
class Journal {
 public:
  // So much code of one process is kept.
  static constexpr uint64_t kCodeMost = 64ull << 20;

  // Whether the handle is good, or memory begins at the address. Called with no lock of its caller's held.
  using Lives = std::function<bool(uint64_t number)>;
  explicit Journal(Lives lives) : lives_(std::move(lives)) {}

  // A call begins: its place. Whoever makes a call because of this one's answer has a later place.
  uint64_t place() { return next_.fetch_add(1, std::memory_order_relaxed); }
  // It has succeeded.
  void add(uint64_t place, const wire::CheckedRecord& record, const Given& given, bool loads = false);
  // Of those that still matter, in order; `why`: what was not kept that would be needed, empty: nothing.
  std::vector<JournalEntry> entries(std::string* why);

 private:
  struct Key;
  bool matters(const JournalEntry& entry) const;
  void supersede(uint64_t place, const JournalEntry& entry);
  void drop_settings_of(uint64_t context);
  void erase(uint64_t place);
  void prune();

  const Lives lives_;
  std::atomic<uint64_t> next_{1};
  std::mutex mutex_;
  std::map<uint64_t, JournalEntry> entries_;    // guarded by mutex_, by place
  std::map<uint64_t, uint64_t> place_of_;       // guarded by mutex_: number -> the entry that was given it
  std::map<std::string, uint64_t> setting_of_;  // guarded by mutex_: what is set -> the entry that has set it last
  size_t prune_at_ = 64;                        // guarded by mutex_
  uint64_t code_bytes_ = 0;                     // guarded by mutex_
  bool code_left_out_ = false;                  // guarded by mutex_
};

}  // namespace bandsaw::runner
