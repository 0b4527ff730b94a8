#include "backend/control/packet.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace bandsaw {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    left.reset(ends[0]);
    right.reset(ends[1]);
  }
  UniqueFd left, right;
};

std::span<const std::byte> text(const char* from) { return std::as_bytes(std::span(from, std::strlen(from))); }

TEST(Packet, CarriesTwoPartsAndDescriptors) {
  Pair pair;
  const int fds[] = {STDERR_FILENO, STDERR_FILENO};
  ASSERT_TRUE(send_packet(pair.left.get(), text("head"), text("tail"), fds).ok());
  std::array<std::byte, 64> buffer;
  std::vector<UniqueFd> arrived;
  ASSERT_EQ(receive_packet(pair.right.get(), buffer, &arrived).value(), 8u);
  EXPECT_EQ(std::memcmp(buffer.data(), "headtail", 8), 0);
  EXPECT_EQ(arrived.size(), 2u);
}

TEST(Packet, TooLargeIsAnErrorAndNotAPart) {
  Pair pair;
  ASSERT_TRUE(send_packet(pair.left.get(), text("0123456789"), {}, {}).ok());
  std::array<std::byte, 4> buffer;
  EXPECT_EQ(receive_packet(pair.right.get(), buffer, nullptr).status().code(), EMSGSIZE);
}

TEST(Packet, EndIsZeroAndNothingIsEagain) {
  Pair pair;
  std::array<std::byte, 4> buffer;
  EXPECT_EQ(receive_packet(pair.right.get(), buffer, nullptr).status().code(), EAGAIN);
  pair.left.reset();
  EXPECT_EQ(receive_packet(pair.right.get(), buffer, nullptr).value(), 0u);
  EXPECT_EQ(send_packet(pair.right.get(), text("x"), {}, {}).code(), EPIPE);
}

TEST(Packet, UnwantedDescriptorsAreClosed) {
  Pair pair;
  int watched[2];
  ASSERT_EQ(::pipe(watched), 0);
  const int fds[] = {watched[1]};
  ASSERT_TRUE(send_packet(pair.left.get(), text("x"), {}, fds).ok());
  ::close(watched[1]);
  std::array<std::byte, 4> buffer;
  ASSERT_TRUE(receive_packet(pair.right.get(), buffer, nullptr).ok());
  char byte;
  EXPECT_EQ(::read(watched[0], &byte, 1), 0);  // the last writing end is closed
  ::close(watched[0]);
}

}  // namespace
}  // namespace bandsaw
