#include "backend/runner/objects/exchange.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "backend/control/packet.h"

namespace bandsaw::runner {
namespace {

class ExchangeClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    session_.reset(pair[0]);
    link_.reset(pair[1]);
    client_.connect(link_.get());
  }
  // What the client has said.
  RunnerMessage received(ExchangeTail* tail, std::vector<UniqueFd>* fds) {
    std::byte buffer[512];
    const auto length = receive_packet(session_.get(), buffer, fds);
    EXPECT_EQ(length.value(), sizeof(RunnerMessage) + sizeof(ExchangeTail));
    RunnerMessage message;
    std::memcpy(&message, buffer, sizeof message);
    std::memcpy(tail, buffer + sizeof message, sizeof *tail);
    return message;
  }
  void answer(uint32_t id, int error, const ExchangeTail& tail, std::vector<UniqueFd> fds = {}) {
    RunnerMessage message{.type = RunnerMessageType::kExchanged, .id = id};
    message.value = static_cast<uint64_t>(error);
    message.bytes = 77;
    client_.answered(message, std::as_bytes(std::span(&tail, 1)), std::move(fds));
  }

  UniqueFd session_, link_;
  ExchangeClient client_;
};

TEST_F(ExchangeClientTest, AnswersFindTheirQuestions) {
  ExchangeClient::Thing thing;
  thing.fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  thing.bytes = 5;
  thing.tail.payload[3] = 9;
  int published = -1, fetched = -1;
  ExchangeKey key{}, wanted{};
  wanted[0] = 1;
  client_.publish(std::move(thing), [&](int error, ExchangeClient::Thing answered) {
    published = error;
    key = answered.tail.key;
  });
  client_.fetch(wanted, false, [&](int error, ExchangeClient::Thing) { fetched = error; });
  ExchangeTail tail;
  std::vector<UniqueFd> fds;
  const RunnerMessage first = received(&tail, &fds);
  EXPECT_EQ(first.type, RunnerMessageType::kPublish);
  EXPECT_EQ(first.bytes, 5u);
  EXPECT_EQ(tail.payload[3], 9);
  EXPECT_EQ(fds.size(), 1u);
  const RunnerMessage second = received(&tail, &fds);
  EXPECT_EQ(second.type, RunnerMessageType::kFetch);
  EXPECT_EQ(tail.key, wanted);
  EXPECT_TRUE(fds.empty());
  answer(second.id, ENOENT, {});
  EXPECT_EQ(fetched, ENOENT);
  EXPECT_EQ(published, -1);
  ExchangeTail made;
  made.key[5] = 4;
  answer(first.id, 0, made);
  EXPECT_EQ(published, 0);
  EXPECT_EQ(key, made.key);
  answer(first.id, 0, made);  // nobody waits for it any more
}

TEST_F(ExchangeClientTest, AFetchedThingComesWithItsDescriptor) {
  bool had_fd = false;
  uint64_t bytes = 0;
  client_.fetch({}, false, [&](int, ExchangeClient::Thing thing) {
    had_fd = static_cast<bool>(thing.fd);
    bytes = thing.bytes;
  });
  ExchangeTail tail;
  std::vector<UniqueFd> fds;
  const uint32_t id = received(&tail, &fds).id;
  fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  answer(id, 0, {}, std::move(fds));
  EXPECT_TRUE(had_fd);
  EXPECT_EQ(bytes, 77u);
}

TEST_F(ExchangeClientTest, WithoutASessionItFails) {
  session_.reset();
  int error = 0;
  client_.fetch({}, false, [&](int why, ExchangeClient::Thing) { error = why; });
  EXPECT_EQ(error, EPIPE);
}

}  // namespace
}  // namespace bandsaw::runner
