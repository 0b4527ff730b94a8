// HTTP with JSON bodies on a Unix socket, through libevent. Knows no resources; those are api.h's.
#pragma once

#include <event2/event.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "memory/base/unique_fd.h"

struct evhttp;
struct evhttp_bound_socket;
struct evhttp_request;

namespace bandsaw {

struct HttpRequest {
  std::string method;             // GET, POST, PATCH, DELETE
  std::vector<std::string> path;  // decoded parts: /v1/vgpus/web0 -> v1, vgpus, web0
  std::string query;              // undecoded, after '?'
  std::string body;
  std::string traceparent{};                                      // the header, as it came
  ucred peer{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};  // who asks, as the kernel knows it
  std::vector<gid_t> groups{};                                    // all of that user's
};

struct HttpAnswer {
  int code = 200;
  std::string body;
  std::string type = "application/json";
};

class HttpServer {
 public:
  // `answer` may be called at once or later, once; it does nothing when the client has gone meanwhile.
  using Answer = std::function<void(const HttpAnswer&)>;
  using Handler = std::function<void(const HttpRequest&, Answer)>;
  HttpServer(event_base* base, UniqueFd listener, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  // Whoever connects from now on waits for another server of the same socket.
  void accept_no_more();

 private:
  static void on_request(evhttp_request* request, void* self);
  struct FreeHttp {
    void operator()(evhttp* http) const;
  };
  std::unique_ptr<evhttp, FreeHttp> http_;
  evhttp_bound_socket* bound_ = nullptr;  // of http_
  Handler handler_;
};

}  // namespace bandsaw
