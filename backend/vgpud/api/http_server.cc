#include "backend/vgpud/api/http_server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "backend/control/owner.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr ssize_t kBodyMax = 64 * 1024, kHeadersMax = 16 * 1024;
constexpr int kTimeoutS = 30;

// A request whose answer is still to come. libevent frees it when the client goes; `request` is then null.
struct Pending {
  evhttp_request* request;
};

const char* method_name(evhttp_cmd_type command) {
  switch (command) {
    case EVHTTP_REQ_GET:
      return "GET";
    case EVHTTP_REQ_POST:
      return "POST";
    case EVHTTP_REQ_PATCH:
      return "PATCH";
    case EVHTTP_REQ_DELETE:
      return "DELETE";
    default:
      return "";
  }
}

std::vector<std::string> split_path(const char* path) {
  std::vector<std::string> parts;
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const size_t slash = rest.find('/');
    const std::string part(rest.substr(0, slash));
    if (!part.empty()) {
      size_t length = 0;
      char* decoded = evhttp_uridecode(part.c_str(), 0, &length);
      parts.emplace_back(decoded ? std::string(decoded, length) : part);
      std::free(decoded);
    }
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  return parts;
}

// Of the process at the other end of a Unix socket.
void take_peer(evhttp_request* request, HttpRequest* result) {
  bufferevent* const stream = evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
  Peer peer = bandsaw::read_peer(bufferevent_getfd(stream));
  result->peer = peer.who;
  result->groups = std::move(peer.groups);
}

HttpRequest read_request(evhttp_request* request) {
  HttpRequest result;
  take_peer(request, &result);
  result.method = method_name(evhttp_request_get_command(request));
  const evhttp_uri* uri = evhttp_request_get_evhttp_uri(request);
  result.path = split_path(uri ? evhttp_uri_get_path(uri) : nullptr);
  if (const char* query = uri ? evhttp_uri_get_query(uri) : nullptr) result.query = query;
  const char* const trace = evhttp_find_header(evhttp_request_get_input_headers(request), "traceparent");
  if (trace) result.traceparent = trace;
  evbuffer* body = evhttp_request_get_input_buffer(request);
  result.body.resize(evbuffer_get_length(body));
  evbuffer_remove(body, result.body.data(), result.body.size());
  return result;
}

void send(evhttp_request* request, const HttpAnswer& answer) {
  evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", answer.type.c_str());
  const std::unique_ptr<evbuffer, decltype(&evbuffer_free)> body(evbuffer_new(), evbuffer_free);
  evbuffer_add(body.get(), answer.body.data(), answer.body.size());
  evhttp_send_reply(request, answer.code, nullptr, body.get());
}

}  // namespace

void HttpServer::FreeHttp::operator()(evhttp* http) const { evhttp_free(http); }

HttpServer::HttpServer(event_base* base, UniqueFd listener, Handler handler)
    : http_(evhttp_new(base)), handler_(std::move(handler)) {
  evhttp_set_max_body_size(http_.get(), kBodyMax);
  evhttp_set_max_headers_size(http_.get(), kHeadersMax);
  evhttp_set_timeout(http_.get(), kTimeoutS);
  evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_PATCH | EVHTTP_REQ_DELETE);
  evhttp_set_gencb(http_.get(), on_request, this);
  bound_ = evhttp_accept_socket_with_handle(http_.get(), listener.release());
}

void HttpServer::accept_no_more() {
  if (bound_) evconnlistener_disable(evhttp_bound_socket_get_listener(bound_));
}

HttpServer::~HttpServer() = default;

void HttpServer::on_request(evhttp_request* request, void* self) {
  auto pending = std::make_shared<Pending>(Pending{request});
  evhttp_connection* connection = evhttp_request_get_connection(request);
  // libevent keeps one close callback per connection, and a connection has one request at a time.
  auto* watched = new std::shared_ptr<Pending>(pending);
  evhttp_connection_set_closecb(
      connection,
      [](evhttp_connection*, void* argument) {
        const std::unique_ptr<std::shared_ptr<Pending>> holder(static_cast<std::shared_ptr<Pending>*>(argument));
        (*holder)->request = nullptr;
      },
      watched);
  static_cast<HttpServer*>(self)->handler_(read_request(request), [pending, watched](const HttpAnswer& answer) {
    evhttp_request* living = std::exchange(pending->request, nullptr);
    if (!living) return;
    evhttp_connection_set_closecb(evhttp_request_get_connection(living), nullptr, nullptr);
    delete watched;
    send(living, answer);
  });
}

}  // namespace bandsaw
