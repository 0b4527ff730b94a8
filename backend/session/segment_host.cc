#include "backend/session/segment_host.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "backend/control/paths.h"
#include "backend/control/vgpu_spec.h"
#include "memory/base/log.h"

namespace bandsaw {

using segment::Access;
using segment::Refusal;

namespace {

int errno_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return 0;
    case Refusal::kUnknown:
      return ENOENT;
    case Refusal::kNotPermitted:
      return EACCES;
    case Refusal::kExists:
      return EEXIST;
    case Refusal::kTooMany:
      return ENOSPC;
  }
  return EINVAL;
}

}  // namespace

void SegmentHost::set(const std::vector<segment::Spec>& specs) {
  apply(book_.set(specs));
  for (const segment::Spec& spec : specs) {
    const auto [held, fresh] = held_.try_emplace(spec.id);
    if (!fresh) continue;
    held->second.bytes = spec.bytes;
    make(spec.id, &held->second);
  }
}

bool SegmentHost::charge(Held* held) {
  held->charged = held->charged || usage_page_->charge(held->bytes);
  if (!held->charged) held->error = "the memory share has no room for it";
  return held->charged;
}

// What has no memory is tried again by whoever wants it next.
void SegmentHost::make(uint64_t segment, Held* held) {
  if (!charge(held)) return;
  held->state = State::kMaking;
  held->error.clear();
  maker_->make(segment, held->bytes,
               [this, segment](Result<SegmentMemory> memory) { made(segment, std::move(memory)); });
}

void SegmentHost::made(uint64_t segment, Result<SegmentMemory> memory) {
  const auto found = held_.find(segment);
  if (found == held_.end()) return;  // it has ended meanwhile
  Held& held = found->second;
  held.state = memory.ok() ? State::kReady : State::kNone;
  if (memory.ok()) {
    held.memory = std::move(memory.value());
  } else {
    held.error = memory.status().message();
    log::error("no memory of {} bytes for a shared segment: {}", held.bytes, held.error);
  }
  const int error = memory.status().code();
  for (const Waiting& waiting : std::exchange(held.waiting, {})) {
    if (!book_.is_attached(waiting.attachment.number)) {
      waiting.answer(ENOENT, {});  // its rights are gone
    } else if (error == 0) {
      give(held, waiting.attachment, waiting.answer);
    } else {
      apply(book_.detach(waiting.attachment.number, waiting.attachment.user));
      waiting.answer(error, {});
    }
    if (!held_.contains(segment)) return;
  }
}

ExchangeKey SegmentHost::key_of(uint64_t attachment) const {
  ExchangeKey key{};
  std::memcpy(key.data(), &index_, sizeof index_);
  std::memcpy(key.data() + sizeof index_, &attachment, sizeof attachment);
  return key;
}

uint64_t SegmentHost::attachment_of(const ExchangeKey& key) {
  uint64_t attachment = 0;
  std::memcpy(&attachment, key.data() + sizeof(uint32_t), sizeof attachment);
  return attachment;
}

void SegmentHost::give(const Held& held, const segment::Attachment& attachment, const Answer& answer) const {
  const bool writes = attachment.access == Access::kReadWrite;
  answer(0, {key_of(attachment.number), held.bytes, attachment.access,
             writes ? held.memory.write.get() : held.memory.for_reading()});
}

int SegmentHost::get(const std::string& name, uint64_t bytes, bool create, bool exclusive, const segment::User& user,
                     AttachedSegment* found) {
  const segment::Spec* spec = book_.find(name, user.vgpu);
  if (spec && create && exclusive) return EEXIST;
  if (!spec) {
    if (!create || user.vgpu != index_) return ENOENT;
    if (!valid_name(name) || bytes == 0 || bytes > INT64_MAX - kSegmentUnit) return EINVAL;
    Held held;
    held.bytes = segment_bytes(bytes);
    if (!charge(&held)) return ENOMEM;
    const Refusal refusal = book_.make(name, held.bytes, user, &spec);
    if (refusal != Refusal::kNone) {
      usage_page_->uncharge(held.bytes);
      return errno_of(refusal);
    }
    Held& kept = held_[spec->id] = std::move(held);
    make(spec->id, &kept);
  }
  if (bytes > spec->bytes) return EINVAL;
  book_.hold(spec->id, user);
  found->bytes = spec->bytes;
  found->access = book_.access(*spec, user.vgpu);
  return 0;
}

void SegmentHost::attach(const std::string& name, bool read_only, const segment::User& user, Answer answer) {
  const segment::Spec* const spec = book_.find(name, user.vgpu);
  if (!spec) return answer(ENOENT, {});
  const uint64_t segment = spec->id;
  segment::Attachment attachment;
  const Access wanted = read_only ? Access::kRead : Access::kReadWrite;
  if (const Refusal refusal = book_.attach(*spec, user, wanted, &attachment); refusal != Refusal::kNone) {
    return answer(errno_of(refusal), {});
  }
  Held& held = held_.at(segment);
  if (held.state == State::kReady) return give(held, attachment, answer);
  if (held.state == State::kNone) make(segment, &held);
  if (held.state == State::kMaking) {
    held.waiting.push_back({attachment, std::move(answer)});
    return;
  }
  apply(book_.detach(attachment.number, user));
  answer(ENOMEM, {});
}

void SegmentHost::detach(const ExchangeKey& key, const segment::User& user) {
  apply(book_.detach(attachment_of(key), user));
}

int SegmentHost::remove(const std::string& name) {
  const segment::Spec* const spec = book_.find(name, index_);
  if (!spec) return ENOENT;
  if (!segment::Book::is_own(*spec)) return EPERM;
  apply(book_.remove_name(spec->id));
  return 0;
}

void SegmentHost::device_lost() {
  for (auto& [segment, held] : held_) {
    if (held.state != State::kReady) continue;
    held.state = State::kNone;
    held.memory = {};
  }
}

void SegmentHost::drop(const segment::User& user) { apply(book_.drop(user)); }

void SegmentHost::apply(const segment::Changes& changes) {
  for (const segment::Attachment& gone : changes.revoked) {
    if (on_revoked_) on_revoked_(gone.user, key_of(gone.number));
  }
  for (const uint64_t segment : changes.ended) {
    auto ended = held_.extract(segment);
    if (ended.empty()) continue;
    if (ended.mapped().state == State::kMaking) maker_->forget(segment);
    if (ended.mapped().charged) usage_page_->uncharge(ended.mapped().bytes);
    for (const Waiting& waiting : ended.mapped().waiting) waiting.answer(ENOENT, {});
  }
}

std::string SegmentHost::any_held() const {
  for (const auto& [spec, named, users] : book_.list()) {
    if (held_.at(spec->id).state != State::kNone) return spec->name;
  }
  return "";
}

nlohmann::json SegmentHost::state() const {
  static constexpr const char* kStates[] = {"none", "making", "ready"};
  auto all = nlohmann::json::array();
  for (const auto& [spec, named, users] : book_.list()) {
    const Held& held = held_.at(spec->id);
    auto attached = nlohmann::json::array();
    for (const auto& [vgpu, count] : users) attached.push_back({{"vgpu", vgpu}, {"count", count}});
    all.push_back({{"id", std::to_string(spec->id)},
                   {"name", spec->name},
                   {"bytes", spec->bytes},
                   {"named", named},
                   {"own", segment::Book::is_own(*spec)},
                   {"state", kStates[static_cast<int>(held.state)]},
                   {"error", held.error},
                   {"users", std::move(attached)}});
  }
  return all;
}

}  // namespace bandsaw
