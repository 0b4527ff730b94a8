// The shared segments that this virtual GPU owns: their memory, what it is charged for, and who has it attached.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/control/runner_link.h"
#include "backend/session/segment_maker.h"
#include "backend/session/usage_page_owner.h"
#include "memory/segment/book.h"

namespace bandsaw {

// What a user gets of a segment.
struct AttachedSegment {
  ExchangeKey key{};
  uint64_t bytes = 0;
  segment::Access access = segment::Access::kNone;
  int fd = -1;  // borrowed
};

// Threads: the event loop's only.
class SegmentHost {
 public:
  using Answer = std::function<void(int error, const AttachedSegment& attached)>;
  using Revoked = std::function<void(const segment::User& user, const ExchangeKey& key)>;

  // `index`: of the virtual GPU. `usage_page` and `maker` outlive this.
  SegmentHost(uint32_t index, UsagePageOwner* usage_page, SegmentMaker* maker)
      : index_(index), book_(index), usage_page_(usage_page), maker_(maker) {}
  SegmentHost(const SegmentHost&) = delete;
  // Told of attachments whose users are to let go of them. Not from inside a call of that user's own.
  void set_on_revoked(Revoked revoked) { on_revoked_ = std::move(revoked); }

  // All that administrators have made, as vgpud says.
  void set(const std::vector<segment::Spec>& specs);
  // Takes one away from all who use it.
  void end(uint64_t segment) { apply(book_.end(segment)); }

  // 0 or an errno: EEXIST, EINVAL (it is smaller), ENOENT, ENOMEM (the share), ENOSPC (too many).
  int get(const std::string& name, uint64_t bytes, bool create, bool exclusive, const segment::User& user,
          AttachedSegment* found);
  // Answers when the memory is there: 0, EACCES, ENOENT, ENOMEM, ENOSPC, or why it cannot be made. `read_only` false:
  // for as much as the user may.
  void attach(const std::string& name, bool read_only, const segment::User& user, Answer answer);
  void detach(const ExchangeKey& key, const segment::User& user);
  // 0, ENOENT or EPERM (made by an administrator).
  int remove(const std::string& name);
  // What was there is lost; whoever attaches a segment next gets new memory. Runners are ended by others.
  void device_lost();
  // The user has ended: nothing of it stays.
  void drop(const segment::User& user);

  // One that has memory; empty: none has.
  std::string any_held() const;
  // For vgpud: [{"id": "...", "name": ..., "bytes": ..., "named": ..., "own": ..., "state": ..., "users": [...]}]
  nlohmann::json state() const;

 private:
  enum class State { kNone, kMaking, kReady };
  struct Waiting {
    segment::Attachment attachment;
    Answer answer;
  };
  struct Held {
    uint64_t bytes = 0;
    bool charged = false;
    State state = State::kNone;
    std::string error;  // why there is no memory
    SegmentMemory memory;
    std::vector<Waiting> waiting;
  };
  void apply(const segment::Changes& changes);
  bool charge(Held* held);
  void make(uint64_t segment, Held* held);
  void made(uint64_t segment, Result<SegmentMemory> memory);
  ExchangeKey key_of(uint64_t attachment) const;
  static uint64_t attachment_of(const ExchangeKey& key);
  void give(const Held& held, const segment::Attachment& attachment, const Answer& answer) const;

  const uint32_t index_;
  segment::Book book_;
  UsagePageOwner* const usage_page_;
  SegmentMaker* const maker_;
  Revoked on_revoked_;
  std::map<uint64_t, Held> held_;  // by segment
};

}  // namespace bandsaw
