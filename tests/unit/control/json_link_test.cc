#include "backend/control/json_link.h"

#include <event2/event.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

namespace bandsaw {
namespace {

using nlohmann::json;

class JsonLink : public ::testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // as our programs do
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
    base_.reset(event_base_new());
    server_ = std::make_unique<JsonServer>(base_.get(), std::move(listen_unix(path(), SOCK_STREAM, 0600).value()),
                                           [](const json& request) { return json{{"echo", request}}; });
  }
  void TearDown() override {
    server_.reset();
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/s"; }
  UniqueFd connected() { return std::move(connect_unix(path(), SOCK_STREAM).value()); }
  // Turns the loop until `done`, for two seconds at most.
  template <typename Done>
  bool turn(Done done) {
    for (int i = 0; i < 200 && !done(); ++i) {
      const timeval tick{0, 10000};
      event_base_loopexit(base_.get(), &tick);
      event_base_dispatch(base_.get());
    }
    return done();
  }
  std::string folder_;
  struct FreeBase {
    void operator()(event_base* base) const { event_base_free(base); }
  };
  std::unique_ptr<event_base, FreeBase> base_;
  std::unique_ptr<JsonServer> server_;
};

TEST_F(JsonLink, NoticesReachWhoWantsThemAndAreNoReplies) {
  JsonClient wants(base_.get(), connected(), nullptr), other(base_.get(), connected(), nullptr);
  int notices = 0, others = 0, answers = 0;
  wants.on_notice([&] { ++notices; });
  other.on_notice([&] { ++others; });
  const auto answered = [&](const Result<json>& reply) { answers += reply.ok() && reply.value().contains("echo"); };
  wants.request({{"notices", true}}, answered);
  other.request({{"notices", false}}, answered);
  ASSERT_TRUE(turn([&] { return answers == 2; }));
  wants.request({{"n", 1}}, answered);  // the notice overtakes its reply
  server_->notify("news");
  EXPECT_TRUE(turn([&] { return answers == 3 && notices == 1; }));
  EXPECT_EQ(others, 0);
  wants.request({{"notices", false}}, answered);
  EXPECT_TRUE(turn([&] { return answers == 4; }));
  server_->notify("news");
  wants.request({{"n", 2}}, answered);
  EXPECT_TRUE(turn([&] { return answers == 5; }));
  EXPECT_EQ(notices, 1);
}

TEST_F(JsonLink, AnswersInOrder) {
  JsonClient client(base_.get(), connected(), nullptr);
  std::vector<int> answers;
  for (int i = 0; i < 3; ++i) {
    client.request({{"n", i}}, [&](const Result<json>& reply) { answers.push_back(reply.value()["echo"]["n"]); });
  }
  EXPECT_TRUE(turn([&] { return answers.size() == 3; }));
  EXPECT_EQ(answers, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(client.peer_pid(), ::getpid());
}

TEST_F(JsonLink, BadLinesGetAnErrorAndLongOnesTheEnd) {
  UniqueFd raw = connected();
  ASSERT_EQ(::send(raw.get(), "nonsense\n[1]\n", 13, 0), 13);
  char buffer[512] = {};
  size_t length = 0;
  EXPECT_TRUE(turn([&] {
    const ssize_t count = ::recv(raw.get(), buffer + length, sizeof buffer - length - 1, MSG_DONTWAIT);
    if (count > 0) length += static_cast<size_t>(count);
    return std::count(buffer, buffer + length, '\n') == 2;
  }));
  EXPECT_NE(std::string(buffer).find("not a JSON object"), std::string::npos);
  const std::string endless(1 << 16, 'x');
  EXPECT_TRUE(turn([&] {
    return ::send(raw.get(), endless.data(), endless.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EPIPE;
  }));
}

TEST_F(JsonLink, TheEndFailsWhatWaits) {
  bool closed = false;
  int error = 0;
  JsonClient client(base_.get(), connected(), [&](const Status&) { closed = true; });
  bool answered = false;
  client.request({{"n", 1}}, [&](const Result<json>&) { answered = true; });
  ASSERT_TRUE(turn([&] { return answered; }));
  server_.reset();
  client.request({{"n", 2}}, [&](const Result<json>& reply) { error = reply.status().code(); });
  EXPECT_TRUE(turn([&] { return closed; }));
  EXPECT_EQ(error, ECONNRESET);
}

TEST(Connect, SaysWhyNot) {
  EXPECT_EQ(connect_unix("/tmp/bandsaw-nobody-listens", SOCK_STREAM).status().code(), ENOENT);
  EXPECT_EQ(connect_unix(std::string(200, 'x'), SOCK_STREAM).status().code(), ENAMETOOLONG);
}

}  // namespace
}  // namespace bandsaw
