#include "backend/control/json_link.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "memory/base/json.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Status::error(ENAMETOOLONG, "'{}' is too long for a socket: at most {} bytes", path,
                         sizeof address.sun_path - 1);
  }
  path.copy(address.sun_path, path.size());
  return address;
}

ucred peer_of(int socket) {
  ucred peer{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  socklen_t length = sizeof peer;
  ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return peer;
}

// Writes one object and the line's end.
void write_line(bufferevent* connection, const nlohmann::json& object) {
  const std::string line = json_text(object) + "\n";
  bufferevent_write(connection, line.data(), line.size());
}

struct FreeLine {
  void operator()(char* line) const { std::free(line); }
};
using Line = std::unique_ptr<char, FreeLine>;

Line read_line(bufferevent* connection, size_t* length) {
  return Line(evbuffer_readln(bufferevent_get_input(connection), length, EVBUFFER_EOL_LF));
}

bool too_long(bufferevent* connection) { return evbuffer_get_length(bufferevent_get_input(connection)) > kJsonLineMax; }

}  // namespace

Result<UniqueFd> listen_unix(const std::string& path, int type, unsigned mode) {
  auto address = address_of(path);
  if (!address.ok()) return address.status();
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return Status::system("cannot make a socket");
  ::unlink(path.c_str());
  const mode_t mask = ::umask(0777);  // nobody connects before the mode is set
  const int bound = ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address.value()), sizeof(sockaddr_un));
  ::umask(mask);
  if (bound < 0) return Status::system("cannot make the socket {}", path);
  if (::listen(socket.get(), 128) < 0) return Status::system("cannot listen on {}", path);
  if (::chmod(path.c_str(), mode) < 0) return Status::system("cannot set the permissions of {}", path);
  return socket;
}

Result<UniqueFd> connect_unix(const std::string& path, int type) {
  auto address = address_of(path);
  if (!address.ok()) return address.status();
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!socket) return Status::system("cannot make a socket");
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address.value()), sizeof(sockaddr_un)) < 0) {
    return Status::system("cannot connect to {}", path);
  }
  return socket;
}

Result<UniqueFd> reach_unix(const std::string& path) {
  auto socket = connect_unix(path, SOCK_SEQPACKET | SOCK_NONBLOCK);
  if (!socket.ok() && socket.status().code() == EPROTOTYPE) socket = connect_unix(path, SOCK_STREAM | SOCK_NONBLOCK);
  return socket;
}

JsonServer::JsonServer(event_base* base, UniqueFd listener, Handler handler)
    : base_(base), listener_(std::move(listener)), handler_(std::move(handler)), owner_(::geteuid()) {
  accept_event_ = event_new(base_, listener_.get(), EV_READ | EV_PERSIST, on_accept, this);
  event_add(accept_event_, nullptr);
}

JsonServer::~JsonServer() {
  event_free(accept_event_);
  for (bufferevent* connection : connections_) bufferevent_free(connection);
}

void JsonServer::on_accept(evutil_socket_t, short, void* self) {
  auto* server = static_cast<JsonServer*>(self);
  UniqueFd socket(::accept4(server->listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return;
  const ucred peer = peer_of(socket.get());
  if (peer.uid != 0 && peer.uid != server->owner_) {
    log::warn("control connection of user {} refused", peer.uid);
    return;
  }
  bufferevent* connection = bufferevent_socket_new(server->base_, socket.release(), BEV_OPT_CLOSE_ON_FREE);
  bufferevent_setcb(connection, on_read, nullptr, on_event, server);
  bufferevent_enable(connection, EV_READ | EV_WRITE);
  server->connections_.insert(connection);
}

void JsonServer::on_read(bufferevent* connection, void* self) {
  auto* server = static_cast<JsonServer*>(self);
  size_t length = 0;
  while (Line line = read_line(connection, &length)) server->answer(connection, line.get(), length);
  if (too_long(connection)) server->drop(connection);
}

void JsonServer::answer(bufferevent* connection, const char* line, size_t length) {
  const auto request = parse_json({line, length});
  if (request.is_object() && request.contains("notices")) {
    request["notices"] == true ? void(listening_.insert(connection)) : void(listening_.erase(connection));
  }
  write_line(connection,
             request.is_object() ? handler_(request) : nlohmann::json{{"ok", false}, {"error", "not a JSON object"}});
}

void JsonServer::on_event(bufferevent* connection, short what, void* self) {
  if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) static_cast<JsonServer*>(self)->drop(connection);
}

void JsonServer::notify(const std::string& notice) {
  for (bufferevent* connection : listening_) write_line(connection, {{"notice", notice}});
}

void JsonServer::drop(bufferevent* connection) {
  connections_.erase(connection);
  listening_.erase(connection);
  bufferevent_free(connection);
}

JsonClient::JsonClient(event_base* base, UniqueFd connected, std::function<void(const Status&)> on_closed)
    : on_closed_(std::move(on_closed)), peer_pid_(peer_of(connected.get()).pid) {
  evutil_make_socket_nonblocking(connected.get());
  connection_ = bufferevent_socket_new(base, connected.release(), BEV_OPT_CLOSE_ON_FREE);
  bufferevent_setcb(connection_, on_read, nullptr, on_event, this);
  bufferevent_enable(connection_, EV_READ | EV_WRITE);
}

JsonClient::~JsonClient() {
  if (connection_) bufferevent_free(connection_);
}

void JsonClient::request(const nlohmann::json& object, Callback callback) {
  if (!connection_) {
    callback(Status::error(ECONNRESET, "the connection has ended"));
    return;
  }
  if (waiting_.size() >= kMostWaiting) {
    callback(Status::error(EBUSY, "the other side has left {} requests unanswered", kMostWaiting));
    return;
  }
  waiting_.push_back(std::move(callback));
  write_line(connection_, object);
}

void JsonClient::on_read(bufferevent* connection, void* self) {
  auto* client = static_cast<JsonClient*>(self);
  size_t length = 0;
  while (Line line = read_line(connection, &length)) {
    auto reply = parse_json({line.get(), length});
    if (reply.is_object() && reply.contains("notice")) {
      if (client->noticed_) client->noticed_();
      continue;
    }
    if (client->waiting_.empty()) continue;
    const Callback callback = std::move(client->waiting_.front());
    client->waiting_.pop_front();
    if (reply.is_object()) {
      callback(std::move(reply));
    } else {
      callback(Status::error(EPROTO, "the reply is not a JSON object"));
    }
  }
  if (too_long(connection)) client->close(Status::error(EPROTO, "a line of more than {} bytes", kJsonLineMax));
}

void JsonClient::on_event(bufferevent*, short what, void* self) {
  if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) static_cast<JsonClient*>(self)->close();
}

void JsonClient::close() { close(Status::error(ECONNRESET, "the connection has ended")); }

void JsonClient::close(const Status& why) {
  if (!connection_) return;
  bufferevent_free(std::exchange(connection_, nullptr));
  for (const auto waiting = std::exchange(waiting_, {}); const Callback& callback : waiting) {
    callback(why);
  }
  if (on_closed_) on_closed_(why);
}

}  // namespace bandsaw
