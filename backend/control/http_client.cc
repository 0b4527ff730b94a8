#include "backend/control/http_client.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <charconv>

#include "backend/control/json_link.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {
namespace {

constexpr size_t kReplyMax = 16u << 20;

Status send_all(int socket, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::system("cannot send the request");
    sent += static_cast<size_t>(count);
  }
  return {};
}

Result<std::string> receive_all(int socket) {
  std::string text;
  char part[16384];
  for (;;) {
    const ssize_t count = ::recv(socket, part, sizeof part, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return Status::error(ETIMEDOUT, "the daemon did not answer in time");
    if (count < 0) return Status::system("cannot receive the reply");
    if (count == 0) return text;
    text.append(part, static_cast<size_t>(count));
    if (text.size() > kReplyMax) return Status::error(EPROTO, "the reply is too large");
  }
}

Result<HttpReply> parse(const std::string& text) {
  const size_t body = text.find("\r\n\r\n");
  HttpReply reply;
  if (!text.starts_with("HTTP/1.") || text.size() < 12 || body == std::string::npos ||
      std::from_chars(text.data() + 9, text.data() + 12, reply.code).ec != std::errc()) {
    return Status::error(EPROTO, "the daemon's answer is not HTTP");
  }
  reply.body = text.substr(body + 4);
  return reply;
}

}  // namespace

Result<HttpReply> http_request(const std::string& socket_path, const std::string& method, const std::string& target,
                               const std::string& body, std::chrono::seconds timeout) {
  auto socket = connect_unix(socket_path, SOCK_STREAM);
  if (!socket.ok()) return socket.status();
  const timeval limit{timeout.count(), 0};
  ::setsockopt(socket.value().get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket.value().get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const std::string request = fmt::format(
      "{} {} HTTP/1.1\r\nHost: bandsaw\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "\r\n{}",
      method, target, body.size(), body);
  if (Status status = send_all(socket.value().get(), request); !status.ok()) return status;
  auto text = receive_all(socket.value().get());
  if (!text.ok()) return text.status();
  return parse(text.value());
}

}  // namespace bandsaw
