// Line-delimited JSON over a Unix stream socket: a request is one line, its reply is one line, in order. A line with
// "notice" is no reply: the server sends it of itself, to clients that asked for notices.
//
// The process ignores SIGPIPE. Threads: everything runs on the thread of the event loop. Callbacks may destroy neither
// the object that calls them.
#pragma once

#include <event2/util.h>

#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_set>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

struct event;
struct event_base;
struct bufferevent;

namespace bandsaw {

inline constexpr size_t kJsonLineMax = 1u << 20;

// A listening Unix socket at `path` with these permissions; an old socket file there is replaced. `type` is
// SOCK_STREAM or SOCK_SEQPACKET.
Result<UniqueFd> listen_unix(const std::string& path, int type, unsigned mode);
Result<UniqueFd> connect_unix(const std::string& path, int type);
// A connection to whoever listens there, with a socket of either type that keeps order. Never waits: EAGAIN, if so many
// wait to be accepted that another would have to.
Result<UniqueFd> reach_unix(const std::string& path);

// Answers requests of any number of connections from root or the process's first user.
class JsonServer {
 public:
  using Handler = std::function<nlohmann::json(const nlohmann::json& request)>;
  JsonServer(event_base* base, UniqueFd listener, Handler handler);
  ~JsonServer();
  JsonServer(const JsonServer&) = delete;
  // A line with this word as its "notice", to all connections whose last request with "notices" had it true.
  void notify(const std::string& notice);

 private:
  static void on_accept(evutil_socket_t, short, void* self);
  static void on_read(bufferevent* connection, void* self);
  static void on_event(bufferevent* connection, short what, void* self);
  void answer(bufferevent* connection, const char* line, size_t length);
  void drop(bufferevent* connection);

  event_base* base_;
  UniqueFd listener_;
  Handler handler_;
  unsigned owner_;
  event* accept_event_ = nullptr;
  std::unordered_set<bufferevent*> connections_, listening_;  // those that want notices
};

class JsonClient {
 public:
  using Callback = std::function<void(Result<nlohmann::json>)>;
  JsonClient(event_base* base, UniqueFd connected, std::function<void(const Status&)> on_closed);
  ~JsonClient();  // waiting callbacks are dropped
  JsonClient(const JsonClient&) = delete;

  // The reply, or ECONNRESET when the connection ends before it, EPROTO when it is no line, EBUSY when as many as
  // kMostWaiting are to come.
  void request(const nlohmann::json& object, Callback callback);
  // What is called for each notice; the server may send any number of them.
  void on_notice(std::function<void()> noticed) { noticed_ = std::move(noticed); }
  int peer_pid() const { return peer_pid_; }
  // Ends the connection: waiting callbacks get ECONNRESET, then `on_closed` is called, with EPROTO if it was the other
  // side's nonsense that ended it.
  void close();

 private:
  static void on_read(bufferevent* connection, void* self);
  static void on_event(bufferevent* connection, short what, void* self);
  void close(const Status& why);
  static constexpr size_t kMostWaiting = 256;

  bufferevent* connection_;
  std::function<void(const Status&)> on_closed_;
  std::function<void()> noticed_;
  std::deque<Callback> waiting_;
  int peer_pid_ = 0;
};

}  // namespace bandsaw
