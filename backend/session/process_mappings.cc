// Command rings and regions of a guest process.
#include <sys/stat.h>

#include <algorithm>

#include "backend/session/process.h"
#include "guest-driver/uapi/vgpu_ring.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr uint32_t kFileRam = 1;  // beside RAM 0, the arena; a runner has one file at a time

}  // namespace

// Is there room for one more, and is its id free?
Status Process::check_room(const Request& request) const {
  const bool is_ring = request.type == VGPU_CTL_ADD_RING;
  const Mappings& taken = is_ring ? rings_ : regions_;
  const size_t limit = is_ring ? VGPU_RINGS_MAX : owner_->config_.regions_max;
  const char* what = is_ring ? "ring" : "region";
  if (taken.contains(request.add.id)) return Status::error(EEXIST, "{} {} exists", what, uint32_t{request.add.id});
  if (taken.size() >= limit) return Status::error(ENOSPC, "a process has at most {} {}s", limit, what);
  if (segments_ + request.segments.size() > owner_->config_.segments_max) {
    return Status::error(ENOSPC, "a process has at most {} segments", owner_->config_.segments_max);
  }
  return {};
}

// A device-visible region that touches the window lies in its lower half and overlaps no other; in direct mode it is
// the arena itself or a file.
Status Process::check_window(const Request& request, bool file) const {
  const uint64_t base = window_base_;
  const uint64_t start = request.add.va, end = start + request.add.bytes;
  if (end <= base || start >= base + VGPU_WINDOW_BYTES) return {};
  if (start < base || end > base + VGPU_WINDOW_DEVICE_OFFSET) {
    return Status::error(EINVAL, "region {:#x}+{:#x} leaves the window's lower half", start, end - start);
  }
  const auto next = window_.lower_bound(start);
  if ((next != window_.end() && next->first < end) || (next != window_.begin() && std::prev(next)->second > start)) {
    return Status::error(EEXIST, "region {:#x}+{:#x} overlaps another", start, end - start);
  }
  if (!owner_->config_.direct || file) return {};
  uint64_t at = start - base;
  for (const vgpu_segment& segment : request.segments) {
    if (segment.address != at) return Status::error(EINVAL, "region {:#x} is not the arena at that address", start);
    at += segment.bytes;
  }
  return {};
}

Result<Translation> Process::translate(const Request& request, const UniqueFd& file) {
  const bool write = !(request.add.flags & VGPU_REGION_READ_ONLY);
  const bool of_file = request.type == VGPU_CTL_ADD_REGION && (request.add.flags & VGPU_REGION_OF_FILE);
  if (of_file != static_cast<bool>(file) || (of_file && !owner_->config_.direct)) {
    return Status::error(EINVAL, "in direct mode a file comes along with a region that says so, and else none");
  }
  if (!file) return owner_->ram_.translate(request.segments, write);
  if (Status status = check_memory_file(file.get(), request.segments); !status.ok()) return status;
  Translation result;
  for (const vgpu_segment& segment : request.segments) {
    result.segments.push_back({kFileRam, 0, segment.address, segment.bytes});
  }
  return result;
}

// The runner keeps the mappings that it makes of it, not the file.
void Process::send_file(const UniqueFd& file) {
  struct stat info{};
  ::fstat(file.get(), &info);
  const int fds[] = {file.get()};
  const RunnerMessage message{
      .type = RunnerMessageType::kRamAdd, .id = kFileRam, .value = round_to_pages(static_cast<uint64_t>(info.st_size))};
  runner_->send(message, {}, fds, [](int) {});
}

std::function<void()> Process::add_again(const Request& request, UniqueFd file, const Answer& answer) {
  return [self = weak_from_this(), request, kept = std::make_shared<UniqueFd>(std::move(file)), answer] {
    if (const auto process = self.lock()) process->add_mapping(request, std::move(*kept), answer);
  };
}

std::function<void()> Process::drop_again(const Request& request, const Answer& answer) {
  return [self = weak_from_this(), request, answer] {
    if (const auto process = self.lock()) process->drop_mapping(request, answer);
  };
}

void Process::add_mapping(const Request& request, UniqueFd file, const Answer& answer) {
  if (state_ == State::kAway) {
    wait_for_runner(add_again(request, std::move(file), answer), answer);
    return;
  }
  const bool is_ring = request.type == VGPU_CTL_ADD_RING;
  const vgpu_ctl_add_region& add = request.add;
  const auto refuse = [&](const Status& status) {
    if (owner_->config_.log->allow()) {
      log::warn("process {}: {} {} refused: {}", id_, is_ring ? "ring" : "region", uint32_t{add.id}, status.message());
    }
    answer(make_reply(status.code(), status.message()), {});
  };
  const bool visible = !is_ring && (add.flags & VGPU_REGION_DEVICE_VISIBLE);
  Status status = usable("add");
  if (status.ok()) status = check_mapping(request);
  if (status.ok()) status = check_room(request);
  if (status.ok() && visible) status = check_window(request, static_cast<bool>(file));
  if (status.ok() && file && state_ == State::kReturning) {
    status = Status::error(ENOTSUP, "pages of files cannot come back");
  }
  if (!status.ok()) return refuse(status);
  auto translation = translate(request, file);
  if (!translation.ok()) return refuse(translation.status());

  const uint64_t base = window_base_, generation = next_generation_++;
  Mapping mapping{.va = add.va,
                  .bytes = add.bytes,
                  .segments = static_cast<uint32_t>(request.segments.size()),
                  .generation = generation,
                  .rams = std::move(translation.value().rams),
                  .flags = add.flags,
                  .pieces = {}};
  if (owner_->config_.replaceable && !file) {
    mapping.pieces = translation.value().segments;
    kept_pieces_ += mapping.pieces.size();
  }
  files_ |= static_cast<bool>(file);
  mapping.in_window = visible && add.va >= base && add.va - base < VGPU_WINDOW_BYTES;
  if (mapping.in_window) window_.emplace(mapping.va, mapping.va + mapping.bytes);
  segments_ += mapping.segments;
  mappings(is_ring).emplace(add.id, std::move(mapping));
  if (state_ == State::kReturning) return answer(make_reply(0, ""), {});  // its runner is told later

  const std::vector<RunnerSegment>& pieces = translation.value().segments;
  const RunnerMessage message{.type = is_ring ? RunnerMessageType::kAddRing : RunnerMessageType::kAddRegion,
                              .id = add.id,
                              .flags = add.flags,
                              .value = add.va,
                              .bytes = add.bytes,
                              .count = static_cast<uint32_t>(pieces.size())};
  if (file) send_file(file);
  forward(
      message, std::as_bytes(std::span(pieces)), answer,
      [is_ring, id = uint32_t{add.id}, generation](Process* process, int error) {
        if (error) process->forget(is_ring, id, generation);
      },
      owner_->config_.replaceable ? add_again(request, {}, answer) : nullptr);
  if (file) runner_->send({.type = RunnerMessageType::kRamDrop, .id = kFileRam}, {}, {}, [](int) {});
}

void Process::drop_mapping(const Request& request, const Answer& answer) {
  if (state_ == State::kAway) {
    wait_for_runner(drop_again(request, answer), answer);
    return;
  }
  const bool is_ring = request.type == VGPU_CTL_DROP_RING;
  Status status = usable("drop");
  if (status.ok() && state_ == State::kReturning) {
    status = Status::error(EAGAIN, "process {} is still to say what it has", id_);
  }
  const auto found = mappings(is_ring).find(request.drop_id);
  if (status.ok() && (found == mappings(is_ring).end() || found->second.dropping)) {
    status = Status::error(ENOENT, "no {} {}", is_ring ? "ring" : "region", request.drop_id);
  }
  if (!status.ok()) return answer(make_reply(status.code(), status.message()), {});
  found->second.dropping = true;
  const RunnerMessage message{.type = is_ring ? RunnerMessageType::kDropRing : RunnerMessageType::kDropRegion,
                              .id = request.drop_id};
  forward(
      message, {}, answer,
      [is_ring, id = request.drop_id, generation = found->second.generation](Process* process, int error) {
        if (error == 0 || error == ENOENT) return process->forget(is_ring, id, generation);
        if (Mapping* mapping = process->find(is_ring, id, generation)) mapping->dropping = false;
      },
      drop_again(request, answer));
}

Process::Mapping* Process::find(bool is_ring, uint32_t id, uint64_t generation) {
  const auto found = mappings(is_ring).find(id);
  return found != mappings(is_ring).end() && found->second.generation == generation ? &found->second : nullptr;
}

void Process::forget(bool is_ring, uint32_t id, uint64_t generation) {
  const Mapping* mapping = find(is_ring, id, generation);
  if (!mapping) return;
  if (mapping->in_window) window_.erase(mapping->va);
  segments_ -= mapping->segments;
  kept_pieces_ -= mapping->pieces.size();
  mappings(is_ring).erase(id);
}

}  // namespace bandsaw
