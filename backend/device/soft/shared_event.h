// Events that several processes of one virtual GPU have: two words in a sealed file that all of them map.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "backend/device/soft/op.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::soft {

// Thread-safe. Another process may write the words as it likes; they decide only when waits for this event end.
class SharedEvent {
 public:
  static std::shared_ptr<SharedEvent> make();          // nullptr: the system has no more memory or descriptors
  static std::shared_ptr<SharedEvent> import(int fd);  // nullptr: that is no such file
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  int fd() const { return file_.get(); }
  // A record was issued; the number that it gets.
  uint64_t issue() { return words_->issued.fetch_add(1) + 1; }
  uint64_t issued() const { return words_->issued.load(); }
  // The record with this number has ended.
  void complete(uint64_t record);
  bool is_complete(uint64_t record) const { return words_->complete.load() >= record; }

 private:
  struct Words {
    std::atomic<uint64_t> issued, complete;
  };
  SharedEvent(UniqueFd file, Words* words) : file_(std::move(file)), words_(words) {}
  static std::shared_ptr<SharedEvent> map(UniqueFd file);

  const UniqueFd file_;
  Words* const words_;
};

// Ends when the record has, whichever process issued it.
class SharedEventWait final : public StreamOp {
 public:
  SharedEventWait(std::shared_ptr<SoftContext> context, std::shared_ptr<SharedEvent> event, uint64_t record)
      : StreamOp(std::move(context)), event_(std::move(event)), record_(record) {}
  bool start(Scheduler& scheduler, CUresult* status) override;
  void cancel(Scheduler&) override { cancelled_ = true; }

 private:
  bool ready(CUresult* status) const;
  const std::shared_ptr<SharedEvent> event_;
  const uint64_t record_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace bandsaw::soft
