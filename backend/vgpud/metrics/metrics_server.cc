#include "backend/vgpud/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace bandsaw {
namespace {

constexpr const char* kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
constexpr int kBacklog = 16;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

bool read_address(const std::string& text, uint16_t port, Address* out) {
  auto* four = reinterpret_cast<sockaddr_in*>(&out->storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&out->storage);
  if (::inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    out->length = sizeof *four;
    return true;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) != 1) return false;
  six->sin6_family = AF_INET6;
  six->sin6_port = htons(port);
  out->length = sizeof *six;
  return true;
}

}  // namespace

Status parse_listen(const std::string& text, std::string* address, uint16_t* port) {
  const auto bad = [&text] {
    return Status::error(EINVAL, "'{}' is not an address and a port like \"127.0.0.1:9495\" or \"[::1]:9495\"",
                         text.substr(0, 80));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad();
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (bracketed != (host.find(':') != std::string::npos)) return bad();
  unsigned number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data() + colon + 1, end, number);
  Address ignored;
  if (code != std::errc() || stop != end || number == 0 || number > 65535) return bad();
  if (!read_address(host, static_cast<uint16_t>(number), &ignored)) return bad();
  *address = host;
  *port = static_cast<uint16_t>(number);
  return {};
}

namespace {

Result<UniqueFd> tcp_socket(const Address& where) {
  UniqueFd socket(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket) return socket;
  if (errno != EAFNOSUPPORT) return Status::system("cannot make a TCP socket for the metrics");
  return Status::error(EAFNOSUPPORT,
                       "'metrics.listen' and 'metrics.traces' need a network, which systemd's unit keeps from vgpud: "
                       "`mkdir -p /etc/systemd/system/vgpud.service.d && ln -s "
                       "/usr/share/bandsaw/systemd/network.conf /etc/systemd/system/vgpud.service.d/ && systemctl "
                       "daemon-reload && systemctl restart vgpud`");
}

}  // namespace

Status check_network(const std::string& address, uint16_t port) {
  Address where;
  if (address.empty() || !read_address(address, port, &where)) return {};
  return tcp_socket(where).status();
}

Result<UniqueFd> listen_tcp(const std::string& address, uint16_t port) {
  Address where;
  if (!read_address(address, port, &where)) return Status::error(EINVAL, "'{}' is not an IP address", address);
  auto made = tcp_socket(where);
  if (!made.ok()) return made;
  UniqueFd socket = std::move(made.value());
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&where.storage), where.length) < 0 ||
      ::listen(socket.get(), kBacklog) < 0) {
    const int code = errno;
    return Status::error(code,
                         "cannot serve metrics on {} port {}: {}; choose another 'metrics.listen', or leave it out",
                         address, port, std::strerror(code));
  }
  return socket;
}

MetricsServer::MetricsServer(event_base* base, UniqueFd listener, Collect collect)
    : server_(base, std::move(listener),
              [collect = std::move(collect)](const HttpRequest& request, const HttpServer::Answer& answer) {
                if (request.path != std::vector<std::string>{"metrics"}) {
                  return answer({.code = 404, .body = "the metrics are at /metrics\n", .type = "text/plain"});
                }
                if (request.method != "GET") {
                  return answer({.code = 405, .body = "GET only\n", .type = "text/plain"});
                }
                collect([answer](std::string text) {
                  answer({.code = 200, .body = std::move(text), .type = kTextFormat});
                });
              }) {}

}  // namespace bandsaw
