#include "backend/control/http_client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <functional>
#include <thread>

#include "backend/control/json_link.h"

namespace bandsaw {
namespace {

using std::chrono::seconds;

class HttpClient : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
  }
  void TearDown() override {
    if (server_.joinable()) server_.join();
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/s"; }
  // Takes one connection and all that comes until an empty line; what `answer` makes of it is sent.
  void serve(std::function<std::string(const std::string& request)> answer) {
    listener_ = std::move(listen_unix(path(), SOCK_STREAM, 0600).value());
    server_ = std::thread([this, answer = std::move(answer)] {
      pollfd ready{listener_.get(), POLLIN, 0};
      ::poll(&ready, 1, 5000);
      const UniqueFd client(::accept(listener_.get(), nullptr, nullptr));
      std::string request;
      char part[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t count = ::recv(client.get(), part, sizeof part, 0);
        if (count <= 0) return;
        request.append(part, static_cast<size_t>(count));
      }
      const std::string text = answer(request);
      for (size_t sent = 0; sent < text.size();) {
        const ssize_t count = ::send(client.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (count <= 0) return;
        sent += static_cast<size_t>(count);
      }
    });
  }
  int error_of(const std::string& answer, seconds timeout = seconds(5)) {
    serve([answer](const std::string&) { return answer; });
    return http_request(path(), "GET", "/", "", timeout).status().code();
  }
  std::string folder_;
  UniqueFd listener_;
  std::thread server_;
};

TEST_F(HttpClient, SendsMethodTargetAndBody) {
  std::string request;
  serve([&request](const std::string& text) {
    request = text;
    return "HTTP/1.1 409 Conflict\r\nContent-Length: 3\r\n\r\n{}\n";
  });
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);
  const auto reply = http_request(path(), "PATCH", "/v1/vgpus/%2E%2E?force=1", "{\"a\":1}", seconds(5));
  ::unsetenv("http_proxy");
  server_.join();
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply.value().code, 409);
  EXPECT_EQ(reply.value().body, "{}\n");
  EXPECT_TRUE(request.starts_with("PATCH /v1/vgpus/%2E%2E?force=1 HTTP/1.1\r\n")) << request;
  EXPECT_NE(request.find("Content-Type: application/json\r\n"), std::string::npos) << request;
  EXPECT_NE(request.find("Content-Length: 7\r\n"), std::string::npos) << request;
}

TEST_F(HttpClient, SaysWhyNot) {
  EXPECT_EQ(http_request(path(), "GET", "/", "", seconds(1)).status().code(), ENOENT);
  EXPECT_EQ(http_request(std::string(200, 'x'), "GET", "/", "", seconds(1)).status().code(), ENAMETOOLONG);
  {
    const auto nobody = listen_unix(path(), SOCK_STREAM, 0600);
  }
  EXPECT_EQ(http_request(path(), "GET", "/", "", seconds(1)).status().code(), ECONNREFUSED);
}

TEST_F(HttpClient, SaysThatAccessIsDenied) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs another user";
  const auto listener = listen_unix(path(), SOCK_STREAM, 0600);
  ASSERT_TRUE(listener.ok());
  ::chmod(folder_.c_str(), 0755);
  ASSERT_EQ(::seteuid(65534), 0);
  const Status status = http_request(path(), "GET", "/", "", seconds(1)).status();
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(status.code(), EACCES) << status.message();
}

TEST_F(HttpClient, WaitsForSoLongAndNoLonger) {
  const auto listener = listen_unix(path(), SOCK_STREAM, 0600);  // nobody accepts
  EXPECT_EQ(http_request(path(), "GET", "/", "", seconds(1)).status().code(), ETIMEDOUT);
}

TEST_F(HttpClient, TakesNothingThatIsNotHttp) { EXPECT_EQ(error_of("nonsense\n\n"), EPROTO); }

TEST_F(HttpClient, TakesNothingThatEndsEarly) {
  EXPECT_EQ(error_of("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"), EPROTO);
}

TEST_F(HttpClient, TakesNothingThatIsTooLarge) {
  EXPECT_EQ(error_of("HTTP/1.1 200 OK\r\n\r\n" + std::string((16u << 20) + 1, 'x')), EPROTO);
}

TEST(UrlEscaped, IsOnePartOfAPath) {
  EXPECT_EQ(url_escaped("web-0_a"), "web-0_a");
  EXPECT_EQ(url_escaped("a/b?c%"), "a%2Fb%3Fc%25");
  EXPECT_EQ(url_escaped(""), "");
}

}  // namespace
}  // namespace bandsaw
