// What the arbiter takes of a session's packets.
#include "backend/vgpud/arbiter/gate_message.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <vector>

#include "backend/vgpud/arbiter/channel_groups.h"

namespace bandsaw {
namespace {

GateMessage with_groups(uint32_t count) {
  GateMessage message{.type = GateMessageType::kChannelGroups, .slot = 3, .channel_groups = {}};
  message.channel_groups.client = 0xc1d0001;
  message.channel_groups.count = count;
  for (uint32_t i = 0; i < std::min(count, kChannelGroupsMax); ++i) message.channel_groups.handles[i] = i + 1;
  return message;
}

auto read(const GateMessage& message, size_t descriptors) {
  return read_gate_message(std::as_bytes(std::span(&message, 1)), descriptors);
}

TEST(GateMessage, AListOfGroupsComesWithItsDescriptors) {
  const auto some = read(with_groups(2), 2);
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some.value().slot, 3u);
  EXPECT_EQ(some.value().channel_groups, with_groups(2).channel_groups);
  EXPECT_TRUE(read(with_groups(kChannelGroupsMax), 2).ok());
  EXPECT_TRUE(read(with_groups(0), 0).ok());
  for (const size_t descriptors : {0u, 1u, 3u, 8u}) {
    EXPECT_EQ(read(with_groups(2), descriptors).status().code(), EPROTO) << descriptors;
  }
  EXPECT_EQ(read(with_groups(0), 1).status().code(), EPROTO);
  EXPECT_EQ(read(with_groups(0), 2).status().code(), EPROTO);
}

TEST(GateMessage, NumbersThatCannotBeAreRefused) {
  EXPECT_EQ(read(with_groups(kChannelGroupsMax + 1), 2).status().code(), EPROTO);
  EXPECT_EQ(read(with_groups(~0u), 2).status().code(), EPROTO);
  GateMessage message = with_groups(1);
  message.slot = kGateSlots;
  EXPECT_EQ(read(message, 2).status().code(), EPROTO);
  message.slot = kGateSlots - 1;
  EXPECT_TRUE(read(message, 2).ok());
  for (const uint32_t type : {0u, 3u, ~0u}) {
    message.type = static_cast<GateMessageType>(type);
    EXPECT_EQ(read(message, 2).status().code(), EPROTO) << type;
  }
}

TEST(GateMessage, ARunnerThatEndsHasNoGroups) {
  GateMessage message{.type = GateMessageType::kRunnerEnds, .slot = 1, .channel_groups = {}};
  EXPECT_TRUE(read(message, 0).ok());
  EXPECT_EQ(read(message, 2).status().code(), EPROTO);
  message.channel_groups.count = 1;
  EXPECT_EQ(read(message, 2).status().code(), EPROTO);
}

TEST(GateMessage, EveryOtherLengthIsRefused) {
  const GateMessage message = with_groups(1);
  std::vector<std::byte> bytes(sizeof message + 64);
  std::memcpy(bytes.data(), &message, sizeof message);
  for (size_t length = 0; length <= bytes.size(); ++length) {
    EXPECT_EQ(read_gate_message(std::span(bytes).first(length), 2).ok(), length == sizeof message) << length;
  }
}

TEST(ChannelGroups, OnlyTheDriversDeviceIsTaken) {
  const ChannelGroupList list = with_groups(1).channel_groups;
  for (const char* path : {"/dev/null", "/dev/zero", "/proc/self/exe", "/tmp"}) {
    UniqueFd descriptor(::open(path, O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(descriptor) << path;
    const auto groups = ChannelGroups::adopt(std::move(descriptor), list);
    EXPECT_EQ(groups.status().code(), EINVAL) << path;
    EXPECT_NE(groups.status().message().find("/dev/nvidiactl"), std::string::npos);
    EXPECT_TRUE(descriptor) << "it is still the caller's";
  }
  EXPECT_EQ(ChannelGroups::adopt(UniqueFd(), list).status().code(), EBADF);
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ChannelGroups::adopt(std::move(null), with_groups(0).channel_groups).status().code(), EINVAL);
  EXPECT_EQ(ChannelGroups::adopt(std::move(null), with_groups(kChannelGroupsMax + 1).channel_groups).status().code(),
            EINVAL);
}

}  // namespace
}  // namespace bandsaw
