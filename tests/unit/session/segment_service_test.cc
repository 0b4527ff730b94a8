// Two sessions in one event loop: what one owns, runners of both attach, as vgpud says.
#include "backend/session/segment_service.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "backend/control/paths.h"
#include "guest-driver/uapi/vgpu_wire.h"
#include "tests/unit/session/fake_runner.h"
#include "tests/unit/session/launchers.h"

namespace bandsaw {
namespace {

using nlohmann::json;

constexpr uint64_t kMiB = 1 << 20;

// A runner that keeps what it is told of segments.
struct SegmentRunner : FakeRunner {
  struct Answer {
    RunnerMessage message;
    ExchangeTail tail;
    size_t fds = 0;
  };
  void send(RunnerMessage message, std::span<const std::byte> tail, std::span<const int> fds, Done) override {
    Answer answer{message, {}, fds.size()};
    ASSERT_EQ(tail.size(), sizeof answer.tail);
    std::memcpy(&answer.tail, tail.data(), tail.size());
    (message.type == RunnerMessageType::kRevoked ? revoked : answers).push_back(answer);
  }
  std::vector<Answer> answers, revoked;
};

struct SegmentSide {
  SegmentSide(event_base* base, const std::string& run, uint32_t index)
      : page(std::move(UsagePageOwner::open(64 * kMiB).value())),
        launcher(plain_launcher()),
        maker(base, launcher.get()),
        host(index, &page, &maker),
        service(index, &host),
        links(base, std::move(listen_for_peers(run, index).value()), {run, index, -1}, &exchange,
              [this](const ExchangeKey& key) { service.revoked(key); }) {
    links.offer(&service);
    service.connect(&links);
  }
  UsagePageOwner page;
  std::unique_ptr<Launcher> launcher;
  SegmentMaker maker;
  SegmentHost host;
  SegmentService service;
  Exchange exchange;
  PeerLinks links;
};

json told(uint32_t owner, const char* access, json grants = nullptr, const char* id = "9", uint64_t bytes = 4 * kMiB) {
  json one = {{"id", id}, {"name", "frames"}, {"bytes", bytes}, {"owner", owner}, {"access", access}};
  if (!grants.is_null()) one["grants"] = std::move(grants);
  return json::array({one});
}

json granted(const char* access) { return json::array({{{"vgpu", 2u}, {"access", access}}}); }

class SegmentServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    run = ::mkdtemp(folder);
    owner = std::make_unique<SegmentSide>(base.get(), run, 1);
    user = std::make_unique<SegmentSide>(base.get(), run, 2);
  }
  void TearDown() override {
    user.reset();
    owner.reset();
    std::filesystem::remove_all(run);
  }
  void share(const char* access) {
    ASSERT_TRUE(owner->service.set(told(1, "write", granted(access))).ok());
    ASSERT_TRUE(user->service.set(told(1, access)).ok());
  }
  void turn() {
    for (int i = 0; i < 50; ++i) event_base_loop(base.get(), EVLOOP_NONBLOCK);
  }
  // What comes of a request; the memory of a segment is made by another process, which takes a moment.
  int ask(SegmentSide& side, SegmentRunner& runner, RunnerMessageType what, const std::string& name = "frames",
          uint32_t flags = 0, uint64_t bytes = 0) {
    RunnerMessage message{.type = what, .id = 3, .flags = flags};
    message.bytes = bytes;
    ExchangeTail tail;
    name.copy(reinterpret_cast<char*>(tail.payload.data()), tail.payload.size());
    const size_t before = runner.answers.size();
    side.service.request(&runner, message, tail);
    for (int i = 0; i < 500 && runner.answers.size() == before; ++i) {
      turn();
      ::usleep(10'000);
    }
    if (runner.answers.size() == before) return -1;
    EXPECT_EQ(runner.answers.back().message.id, 3u);
    return static_cast<int>(runner.answers.back().message.value);
  }
  int attach(SegmentSide& side, SegmentRunner& runner, uint32_t flags = 0) {
    return ask(side, runner, RunnerMessageType::kSegmentAttach, "frames", flags);
  }
  void detach(SegmentSide& side, SegmentRunner& runner, const ExchangeKey& key) {
    side.service.request(&runner, {.type = RunnerMessageType::kSegmentDetach}, {key, {}});
    turn();
  }
  uint32_t access_in(const SegmentRunner::Answer& answer) {
    SegmentTail tail;
    std::memcpy(&tail, answer.tail.payload.data(), sizeof tail);
    return tail.access;
  }
  json listed() { return owner->host.state(); }

  BasePtr base{event_base_new()};
  std::string run;
  std::unique_ptr<SegmentSide> owner, user;
  SegmentRunner mine, his;
};

TEST_F(SegmentServiceTest, BothHaveItAndItsOwnerIsCharged) {
  share("write");
  EXPECT_EQ(attach(*owner, mine), 0);
  EXPECT_EQ(attach(*user, his), 0);
  for (const SegmentRunner* runner : {&mine, &his}) {
    EXPECT_EQ(runner->answers.back().fds, 1u);
    EXPECT_EQ(runner->answers.back().message.bytes, 4 * kMiB);
    EXPECT_EQ(access_in(runner->answers.back()), uint32_t{VGPU_SEGMENT_ACCESS_WRITE});
  }
  EXPECT_EQ(owner->page.memory_used(), int64_t{4 * kMiB});
  EXPECT_EQ(user->page.memory_used(), 0);
  EXPECT_EQ(listed()[0]["users"].size(), 2u);
}

TEST_F(SegmentServiceTest, WhoMayReadGetsNoMore) {
  share("read");
  EXPECT_EQ(attach(*user, his), EACCES);
  EXPECT_EQ(attach(*user, his, VGPU_SEGMENT_READ_ONLY), 0);
  EXPECT_EQ(access_in(his.answers.back()), uint32_t{VGPU_SEGMENT_ACCESS_READ});
}

TEST_F(SegmentServiceTest, ASessionThatClaimsARightGetsNothing) {
  ASSERT_TRUE(owner->service.set(told(1, "write", json::array())).ok());
  ASSERT_TRUE(user->service.set(told(1, "write")).ok());
  EXPECT_EQ(attach(*user, his), ENOENT);
}

TEST_F(SegmentServiceTest, WhoHasNoRightFindsNothing) {
  ASSERT_TRUE(owner->service.set(told(1, "write", json::array())).ok());
  EXPECT_EQ(ask(*user, his, RunnerMessageType::kSegmentGet), ENOENT);
  EXPECT_EQ(attach(*user, his), ENOENT);
  EXPECT_EQ(ask(*user, his, RunnerMessageType::kSegmentGet, "No Name"), EINVAL);
  EXPECT_EQ(ask(*user, his, RunnerMessageType::kSegmentGet, std::string(64, 'a')), EINVAL);
}

TEST_F(SegmentServiceTest, WhatIsRevokedIsTakenBack) {
  share("write");
  attach(*user, his);
  attach(*owner, mine);
  const ExchangeKey key = his.answers.back().tail.key;
  ASSERT_TRUE(owner->service.set(told(1, "write", json::array())).ok());  // the user's session hears of it later
  turn();
  ASSERT_EQ(his.revoked.size(), 1u);
  EXPECT_EQ(his.revoked[0].tail.key, key);
  EXPECT_TRUE(mine.revoked.empty());
  EXPECT_EQ(listed()[0]["users"].size(), 1u);
  detach(*user, his, key);  // too late
  EXPECT_EQ(attach(*user, his), ENOENT);
}

TEST_F(SegmentServiceTest, TheUsersSessionActsToo) {
  share("write");
  attach(*user, his);
  ASSERT_TRUE(user->service.set(told(1, "read")).ok());  // the owner's session hears of it later
  turn();
  EXPECT_EQ(his.revoked.size(), 1u);
  EXPECT_TRUE(listed()[0]["users"].empty());
}

TEST_F(SegmentServiceTest, ItEndsWithItsLastUser) {
  share("write");
  attach(*user, his);
  ASSERT_TRUE(user->service.set(json::array()).ok());
  ASSERT_TRUE(owner->service.set(json::array()).ok());
  turn();
  EXPECT_TRUE(his.revoked.empty());
  EXPECT_EQ(listed()[0]["named"], false);
  EXPECT_EQ(owner->page.memory_used(), int64_t{4 * kMiB});
  detach(*user, his, his.answers.back().tail.key);
  EXPECT_TRUE(listed().empty());
  EXPECT_EQ(owner->page.memory_used(), 0);
}

TEST_F(SegmentServiceTest, AKilledRunnerLeavesNothing) {
  share("write");
  attach(*user, his);
  attach(*user, his);
  attach(*owner, mine);
  user->service.drop(&his);
  owner->service.drop(&mine);
  turn();
  EXPECT_TRUE(listed()[0]["users"].empty());
}

TEST_F(SegmentServiceTest, ASessionThatEndsLeavesNothing) {
  share("write");
  attach(*user, his);
  user.reset();
  turn();
  EXPECT_TRUE(listed()[0]["users"].empty());
}

TEST_F(SegmentServiceTest, WithItsOwnersSessionItIsGone) {
  share("write");
  attach(*user, his);
  owner.reset();
  turn();
  EXPECT_EQ(his.revoked.size(), 1u);
  EXPECT_EQ(attach(*user, his), ENODEV);
}

TEST_F(SegmentServiceTest, ForceTakesItFromAll) {
  share("write");
  attach(*user, his);
  attach(*owner, mine);
  owner->host.end(9);
  turn();
  EXPECT_EQ(his.revoked.size(), 1u);
  EXPECT_EQ(mine.revoked.size(), 1u);
  EXPECT_EQ(owner->page.memory_used(), 0);
}

TEST_F(SegmentServiceTest, AnothersAttachmentIsNotGivenBack) {
  share("write");
  attach(*user, his);
  SegmentRunner hostile;
  attach(*user, hostile);
  detach(*user, hostile, his.answers.back().tail.key);
  EXPECT_EQ(listed()[0]["users"][0]["count"], 2);
}

TEST_F(SegmentServiceTest, WhatTheShareHasNoRoomForHasNoMemory) {
  ASSERT_TRUE(owner->service.set(told(1, "write", granted("write"), "9", 128 * kMiB)).ok());
  EXPECT_EQ(attach(*owner, mine), ENOMEM);
  EXPECT_EQ(owner->page.memory_used(), 0);
  owner->page.set_memory_share(256 * kMiB);
  EXPECT_EQ(attach(*owner, mine), 0) << "tried again";
}

TEST_F(SegmentServiceTest, WhatTheDeviceHasNoRoomForHasNoMemory) {
  owner->page.set_memory_share(uint64_t{4} << 40);
  ASSERT_TRUE(owner->service.set(told(1, "write", granted("write"), "9", uint64_t{2} << 40)).ok());
  EXPECT_EQ(attach(*owner, mine), ENOMEM);
  EXPECT_TRUE(listed()[0]["users"].empty());
  EXPECT_NE(listed()[0]["error"], "");
}

// However many a program makes and takes away at once, their memory is made one after the other, or not at all.
TEST_F(SegmentServiceTest, WhatIsGoneBeforeItIsMadeIsNotMade) {
  const auto ask_now = [&](RunnerMessageType what, const std::string& name) {
    RunnerMessage message{.type = what, .flags = VGPU_SEGMENT_CREATE};
    message.bytes = 1;
    ExchangeTail tail;
    name.copy(reinterpret_cast<char*>(tail.payload.data()), tail.payload.size());
    owner->service.request(&mine, message, tail);
    return static_cast<int>(mine.answers.back().message.value);
  };
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(ask_now(RunnerMessageType::kSegmentGet, "own"), 0);
    ASSERT_EQ(ask_now(RunnerMessageType::kSegmentRemove, "own"), 0);
  }
  EXPECT_EQ(owner->page.memory_used(), 0);
  share("write");
  EXPECT_EQ(attach(*owner, mine), 0) << "soon";
}

TEST_F(SegmentServiceTest, ProgramsMakeTheirOwn) {
  const auto get = [&](SegmentRunner& runner, uint32_t flags, uint64_t bytes) {
    return ask(*owner, runner, RunnerMessageType::kSegmentGet, "own", flags, bytes);
  };
  SegmentRunner other;
  EXPECT_EQ(get(mine, 0, 0), ENOENT);
  EXPECT_EQ(get(mine, VGPU_SEGMENT_CREATE, 1), 0);
  EXPECT_EQ(mine.answers.back().message.bytes, 2 * kMiB);
  EXPECT_EQ(get(mine, VGPU_SEGMENT_CREATE | VGPU_SEGMENT_EXCLUSIVE, 1), EEXIST);
  EXPECT_EQ(get(other, 0, 3 * kMiB), EINVAL) << "it is smaller";
  EXPECT_EQ(get(other, 0, 0), 0);
  EXPECT_EQ(get(mine, VGPU_SEGMENT_CREATE, UINT64_MAX), EINVAL);
  owner->service.drop(&mine);
  EXPECT_EQ(owner->page.memory_used(), int64_t{2 * kMiB});
  owner->service.drop(&other);
  EXPECT_EQ(owner->page.memory_used(), 0);
  EXPECT_TRUE(listed().empty());
}

TEST_F(SegmentServiceTest, OnlyProgramsNamesAreTakenAwayByPrograms) {
  share("write");
  EXPECT_EQ(ask(*owner, mine, RunnerMessageType::kSegmentRemove), EPERM);
  EXPECT_EQ(ask(*user, his, RunnerMessageType::kSegmentRemove), EPERM);
  EXPECT_EQ(ask(*owner, mine, RunnerMessageType::kSegmentRemove, "none"), ENOENT);
  ask(*owner, mine, RunnerMessageType::kSegmentGet, "own", VGPU_SEGMENT_CREATE, 1);
  EXPECT_EQ(ask(*owner, mine, RunnerMessageType::kSegmentRemove, "own"), 0);
  EXPECT_EQ(ask(*owner, mine, RunnerMessageType::kSegmentGet, "own"), ENOENT);
}

TEST_F(SegmentServiceTest, NonsenseOfVgpudChangesNothing) {
  share("write");
  for (const json& wrong : {json("x"), json::array({1}), told(1, "all"),
                            told(1, "write", json::array({{{"vgpu", -1}}})), told(1, "write", nullptr, "x"),
                            told(1, "write", nullptr, "9223372036854775808"), told(1, "write", nullptr, "9", 0)}) {
    EXPECT_FALSE(owner->service.set(wrong).ok()) << wrong;
  }
  EXPECT_EQ(attach(*user, his), 0);
}

}  // namespace
}  // namespace bandsaw
