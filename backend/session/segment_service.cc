#include "backend/session/segment_service.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "backend/control/paths.h"
#include "backend/session/exchange_service.h"
#include "guest-driver/uapi/vgpu_wire.h"
#include "memory/base/log.h"

namespace bandsaw {

using nlohmann::json;
using segment::Access;

namespace {

constexpr size_t kSegmentsMost = 4096;

void answer(Runner* runner, const RunnerMessage& request, int error, const AttachedSegment& segment = {}) {
  ExchangeTail tail{segment.key, {}};
  const SegmentTail said{static_cast<uint32_t>(segment.access)};
  static_assert(static_cast<uint32_t>(Access::kRead) == VGPU_SEGMENT_ACCESS_READ &&
                static_cast<uint32_t>(Access::kReadWrite) == VGPU_SEGMENT_ACCESS_WRITE);
  std::memcpy(tail.payload.data(), &said, sizeof said);
  answer_exchange(runner, request, error, tail, segment.bytes, segment.fd);
}

std::optional<Access> access_in(const json& object) {
  const auto found = object.find("access");
  if (found == object.end() || !found->is_string()) return std::nullopt;
  if (*found == "write") return Access::kReadWrite;
  if (*found == "read") return Access::kRead;
  return std::nullopt;
}

std::optional<uint32_t> index_in(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() || *found > UINT32_MAX) return std::nullopt;
  return found->get<uint32_t>();
}

// What vgpud says of one.
struct Said {
  segment::Spec spec;
  uint32_t owner = 0;
  Access access = Access::kNone;
};

std::optional<Said> read_segment(const json& object) {
  if (!object.is_object() || !object.value("name", json()).is_string() || !object.value("id", json()).is_string() ||
      !object.value("bytes", json()).is_number_unsigned()) {
    return std::nullopt;
  }
  Said said;
  said.spec.name = object["name"].get<std::string>();
  said.spec.bytes = object["bytes"].get<uint64_t>();
  const std::string id = object["id"].get<std::string>();
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), said.spec.id);
  const auto owner = index_in(object, "owner");
  const auto access = access_in(object);
  const bool numbered = error == std::errc() && end == id.data() + id.size() && said.spec.id < segment::kFirstOwnId;
  if (!numbered || !owner || !access || !valid_name(said.spec.name) || said.spec.bytes == 0) return std::nullopt;
  said.owner = *owner;
  said.access = *access;
  for (const json& grant : object.value("grants", json::array())) {
    const auto vgpu = grant.is_object() ? index_in(grant, "vgpu") : std::nullopt;
    const auto given = vgpu ? access_in(grant) : std::nullopt;
    if (!given) return std::nullopt;
    said.spec.grants[*vgpu] = *given;
  }
  return said;
}

std::string name_in(const ExchangeTail& tail) {
  const auto end = std::find(tail.payload.begin(), tail.payload.end(), 0);
  return {tail.payload.begin(), end};
}

}  // namespace

SegmentService::SegmentService(uint32_t index, SegmentHost* host) : index_(index), host_(host) {
  host_->set_on_revoked([this](const segment::User& user, const ExchangeKey& key) {
    if (user.vgpu != index_) return links_ ? links_->take_back(user.number, key) : void();
    const auto found = attached_.extract(key);
    if (!found.empty()) tell_revoked(found.mapped().runner, key);
  });
}

Status SegmentService::set(const json& segments) {
  if (!segments.is_array() || segments.size() > kSegmentsMost)
    return Status::error(EINVAL, "'segments' must be a list");
  std::vector<segment::Spec> own;
  Foreigns foreign;
  for (const json& object : segments) {
    auto said = read_segment(object);
    if (!said) return Status::error(EINVAL, "one of 'segments' makes no sense");
    if (said->owner == index_) {
      own.push_back(std::move(said->spec));
    } else {
      foreign[said->spec.name] = {said->spec.id, said->spec.bytes, said->owner, said->access};
    }
  }
  foreign_ = std::move(foreign);
  host_->set(own);
  review();
  return {};
}

// Lets go of other virtual GPUs' segments that may not be used as they are now. Their owners' sessions are told the
// same by vgpud; whoever hears first acts.
void SegmentService::review() {
  std::vector<ExchangeKey> gone;
  for (const auto& [key, attached] : attached_) {
    if (!attached.foreign) continue;
    const auto allowed = std::find_if(foreign_.begin(), foreign_.end(),
                                      [&](const auto& one) { return one.second.id == attached.segment; });
    // One whose name is gone is its owner's to end.
    if (allowed != foreign_.end() && allowed->second.access < attached.access) gone.push_back(key);
  }
  for (const ExchangeKey& key : gone) {
    Runner* const runner = attached_.extract(key).mapped().runner;
    if (links_) links_->detach(key);
    tell_revoked(runner, key);
  }
}

segment::User SegmentService::user_of(Runner* runner) {
  const auto [found, fresh] = runners_.try_emplace(runner, next_user_);
  if (fresh) ++next_user_;
  return {index_, found->second};
}

bool SegmentService::is_there(Runner* runner, uint64_t number) const {
  const auto found = runners_.find(runner);
  return found != runners_.end() && found->second == number;
}

void SegmentService::tell_revoked(Runner* runner, const ExchangeKey& key) {
  const ExchangeTail tail{key, {}};
  runner->send({.type = RunnerMessageType::kRevoked}, std::as_bytes(std::span(&tail, 1)), {}, nullptr);
}

void SegmentService::request(Runner* runner, const RunnerMessage& message, const ExchangeTail& tail) {
  if (message.type == RunnerMessageType::kSegmentDetach) return detach_for(runner, tail.key);
  const std::string name = name_in(tail);
  if (!valid_name(name)) return answer(runner, message, EINVAL);
  if (message.type == RunnerMessageType::kSegmentGet) return get(runner, message, name);
  const auto foreign = foreign_.find(name);
  if (message.type == RunnerMessageType::kSegmentRemove) {
    return answer(runner, message, foreign != foreign_.end() ? EPERM : host_->remove(name));
  }
  if (foreign != foreign_.end()) return attach_foreign(runner, message, name, foreign->second);
  attach_own(runner, message, name);
}

void SegmentService::get(Runner* runner, const RunnerMessage& message, const std::string& name) {
  const bool create = message.flags & VGPU_SEGMENT_CREATE, exclusive = message.flags & VGPU_SEGMENT_EXCLUSIVE;
  AttachedSegment found;
  if (const auto foreign = foreign_.find(name); foreign != foreign_.end()) {
    const bool small = message.bytes > foreign->second.bytes;
    found.bytes = foreign->second.bytes;
    found.access = foreign->second.access;
    return answer(runner, message, create && exclusive ? EEXIST : small ? EINVAL : 0, found);
  }
  answer(runner, message, host_->get(name, message.bytes, create, exclusive, user_of(runner), &found), found);
}

void SegmentService::attach_own(Runner* runner, const RunnerMessage& message, const std::string& name) {
  const segment::User user = user_of(runner);
  const bool read_only = message.flags & VGPU_SEGMENT_READ_ONLY;
  host_->attach(name, read_only, user, [this, runner, user, message](int error, const AttachedSegment& attached) {
    if (!is_there(runner, user.number)) return;  // it has ended, and the host knows
    if (error == 0) attached_[attached.key] = {runner, false, 0, attached.access};
    answer(runner, message, error, attached);
  });
}

void SegmentService::attach_foreign(Runner* runner, const RunnerMessage& message, const std::string& name,
                                    const Foreign& foreign) {
  const uint64_t number = user_of(runner).number, segment = foreign.id;
  const bool read_only = message.flags & VGPU_SEGMENT_READ_ONLY;
  if (!links_) return answer(runner, message, ENODEV);
  PeerAttach wanted;
  wanted.read_only = read_only;
  name.copy(wanted.name.data(), wanted.name.size() - 1);
  links_->attach(foreign.owner, wanted, [this, runner, number, message, segment](int error, const PeerSegment& given) {
    if (!is_there(runner, number)) {  // it has ended meanwhile
      if (error == 0) links_->detach(given.key);
      return;
    }
    const auto access = static_cast<Access>(given.access);
    if (error == 0) attached_[given.key] = {runner, true, segment, access};
    answer(runner, message, error, {given.key, given.bytes, access, given.fd.get()});
  });
}

void SegmentService::detach_for(Runner* runner, const ExchangeKey& key) {
  const auto found = attached_.find(key);
  if (found == attached_.end() || found->second.runner != runner) return;
  const bool foreign = found->second.foreign;
  attached_.erase(found);
  if (!foreign) return host_->detach(key, user_of(runner));
  if (links_) links_->detach(key);
}

bool SegmentService::revoked(const ExchangeKey& key) {
  const auto found = attached_.extract(key);
  if (found.empty()) return false;
  tell_revoked(found.mapped().runner, key);
  return true;
}

void SegmentService::drop(Runner* runner) {
  const auto known = runners_.find(runner);
  if (known == runners_.end()) return;
  const segment::User user{index_, known->second};
  runners_.erase(known);
  std::erase_if(attached_, [&](const auto& one) {
    if (one.second.runner != runner) return false;
    if (one.second.foreign && links_) links_->detach(one.first);
    return true;
  });
  host_->drop(user);
}

void SegmentService::attach(uint32_t vgpu, uint64_t visitor, const PeerAttach& wanted, PeerAttached done) {
  const std::string name(wanted.name.data(), strnlen(wanted.name.data(), wanted.name.size()));
  host_->attach(name, wanted.read_only, {vgpu, visitor}, [done](int error, const AttachedSegment& attached) {
    done(error, attached.key, attached.bytes, static_cast<uint32_t>(attached.access), attached.fd);
  });
}

void SegmentService::detach(uint32_t vgpu, uint64_t visitor, const ExchangeKey& key) {
  host_->detach(key, {vgpu, visitor});
}

void SegmentService::left(uint32_t vgpu, uint64_t visitor) { host_->drop({vgpu, visitor}); }

}  // namespace bandsaw
