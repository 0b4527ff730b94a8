// Runners that live only in the test's memory.
#pragma once

#include <event2/event.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/session/processes.h"

namespace bandsaw {

struct FakeRunner : Runner {
  struct Sent {
    RunnerMessage message;
    std::vector<RunnerSegment> segments;
    size_t fds;
    Done done;
  };

  uint64_t window_base() const override { return VGPU_WINDOW_BASE_0; }
  void send(RunnerMessage message, std::span<const std::byte> tail, std::span<const int> fds, Done done) override {
    Sent sent{message, {}, fds.size(), std::move(done)};
    if (message.count) {
      sent.segments.resize(message.count);
      EXPECT_EQ(tail.size(), message.count * sizeof(RunnerSegment));
      std::memcpy(sent.segments.data(), tail.data(), tail.size());
    }
    messages.push_back(std::move(sent));
  }
  void stop(Stop how) override {
    (how == Stop::kKill ? killed : asked) = true;
    said = {};
    if (on_said) on_said();
  }
  bool ending() const override { return killed || asked; }
  void set_contexts_off(bool off) override { are_off = off; }
  bool contexts_off() const override { return are_off; }
  void fail(uint32_t error) override { failed_with = error; }
  int pid() const override { return process; }
  const RunnerChannelGroups* channel_groups() const override { return said ? &*said : nullptr; }
  void set_on_channel_groups(std::function<void()> call) override { on_said = std::move(call); }
  void say(uint32_t groups, UniqueFd descriptor) {
    said = RunnerChannelGroups{{.client = 0xc1d, .count = groups}, std::move(descriptor)};
    for (uint32_t i = 0; i < groups; ++i) said->list.handles[i] = i + 1;
    if (on_said) on_said();
  }
  void set_on_gone(std::function<void()> call) override { on_gone = std::move(call); }
  uint32_t failed_with = 0;

  // Answers everything that is unanswered.
  void answer_all(int error = 0) {
    for (size_t i = 0; i < messages.size(); ++i) {
      if (const auto done = std::exchange(messages[i].done, nullptr)) done(error);
    }
  }
  void die() {
    answer_all(EPIPE);
    if (const auto call = std::exchange(on_gone, nullptr)) call();
  }
  const Sent& last() const { return messages.back(); }

  std::vector<Sent> messages;
  std::function<void()> on_gone, on_said;
  std::optional<RunnerChannelGroups> said;
  int process = 4711;
  bool killed = false, asked = false, are_off = false;
};

struct FakeSource : RunnerSource {
  void take(Taken taken, uint32_t bases) override {
    taken_bases = bases;
    if (hold) {
      waiting.push_back(std::move(taken));
      return;
    }
    if (fail) return taken(Status::error(EIO, "no runner"));
    runners.push_back(std::make_unique<FakeRunner>());
    taken(runners.back().get());
  }
  void release() {
    hold = false;
    for (auto& taken : std::exchange(waiting, {})) take(std::move(taken), 0);
  }
  FakeRunner& last() { return *runners.back(); }
  std::vector<std::unique_ptr<FakeRunner>> runners;
  std::vector<Taken> waiting;
  uint32_t taken_bases = 0;  // of the last who asked
  bool hold = false, fail = false;
};

struct FakeWatcher : ProcessWatcher {
  void wake(uint32_t process) override { woken.push_back(process); }
  void lost(uint32_t process) override { gone.push_back(process); }
  std::vector<uint32_t> woken, gone;
};

// A request's bytes: the fixed part, then segments.
template <typename T>
std::vector<std::byte> bytes_of(const T& fixed, const std::vector<vgpu_segment>& segments = {}) {
  std::vector<std::byte> bytes;
  for (const std::byte byte : std::as_bytes(std::span(&fixed, 1))) bytes.push_back(byte);
  for (const std::byte byte : std::as_bytes(std::span(segments))) bytes.push_back(byte);
  return bytes;
}

inline std::vector<std::byte> simple(uint32_t type, uint32_t process) {
  return bytes_of(vgpu_ctl_header{type, process});
}

inline std::vector<std::byte> create_process(uint32_t process, __le16 minor = 0, __le16 part = 0) {
  vgpu_ctl_create_process request{};
  request.header = {VGPU_CTL_CREATE_PROCESS, process};
  request.schema.minor = minor;
  request.schema.part = part;
  return bytes_of(request);
}

inline std::vector<std::byte> add(uint32_t type, uint32_t process, uint32_t id, uint64_t va,
                                  const std::vector<vgpu_segment>& segments, uint32_t flags = 0) {
  vgpu_ctl_add_region request{};
  request.header = {type, process};
  request.id = id;
  request.flags = flags;
  request.va = va;
  request.segments = static_cast<uint32_t>(segments.size());
  for (const vgpu_segment& segment : segments) request.bytes += segment.bytes;
  return bytes_of(request, segments);
}

inline std::vector<std::byte> drop(uint32_t type, uint32_t process, uint32_t id) {
  return bytes_of(vgpu_ctl_drop{{type, process}, id, 0});
}

inline Ram make_ram(uint32_t id, uint64_t base, uint64_t bytes, uint64_t offset = 0, bool writable = true) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(offset + bytes)), 0);
  return {.id = id, .base = base, .bytes = bytes, .offset = offset, .fd = std::move(fd), .writable = writable};
}

}  // namespace bandsaw
