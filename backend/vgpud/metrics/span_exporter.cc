#include "backend/vgpud/metrics/span_exporter.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr timeval kGather{1, 0};
constexpr int kTimeoutS = 5;
constexpr int kServerSpan = 2, kStatusOk = 1, kStatusError = 2;  // of the protocol

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string random_id(size_t bytes) {
  std::vector<uint8_t> id(bytes);
  // Identifiers only have to differ; so few bytes are always there.
  if (getrandom(id.data(), bytes, 0) != static_cast<ssize_t>(bytes)) id[0] = 1;
  return fmt::format("{:02x}", fmt::join(id, ""));
}

bool is_id(const std::string& text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos &&
         text.find_first_not_of('0') != std::string::npos;
}

// "00-TRACE-PARENT-FLAGS"; anything else begins a trace of its own.
void join_trace(const std::string& traceparent, Span* span) {
  constexpr size_t kTraceAt = 3, kTraceDigits = 32, kParentAt = 36, kParentDigits = 16, kLength = 55;
  if (traceparent.size() != kLength || !traceparent.starts_with("00-")) return;
  const std::string trace = traceparent.substr(kTraceAt, kTraceDigits);
  const std::string parent = traceparent.substr(kParentAt, kParentDigits);
  if (!is_id(trace, kTraceDigits) || !is_id(parent, kParentDigits)) return;
  span->trace_id = trace;
  span->parent_id = parent;
}

nlohmann::json attribute(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

nlohmann::json to_json(const Span& span) {
  auto attributes = nlohmann::json::array();
  for (const auto& [key, value] : span.attributes) attributes.push_back(attribute(key, value));
  attributes.push_back({{"key", "http.response.status_code"}, {"value", {{"intValue", std::to_string(span.status)}}}});
  nlohmann::json result = {{"traceId", span.trace_id},
                           {"spanId", span.span_id},
                           {"name", span.name},
                           {"kind", kServerSpan},
                           {"startTimeUnixNano", std::to_string(span.begin_ns)},
                           {"endTimeUnixNano", std::to_string(span.end_ns)},
                           {"attributes", std::move(attributes)},
                           {"status", {{"code", span.status < 400 ? kStatusOk : kStatusError}}}};
  if (!span.parent_id.empty()) result["parentSpanId"] = span.parent_id;
  return result;
}

}  // namespace

Span span_of(const HttpRequest& request) {
  Span span{.trace_id = random_id(16), .span_id = random_id(8), .begin_ns = now_ns()};
  join_trace(request.traceparent, &span);
  std::string route, path;
  for (size_t i = 0; i < request.path.size(); ++i) {
    path += "/" + request.path[i];
    route += i == 2 ? "/{name}" : "/" + request.path[i];
  }
  span.name = request.method + " " + route;
  span.attributes = {{"http.request.method", request.method},
                     {"http.route", route},
                     {"url.path", path},
                     {"user.id", std::to_string(request.peer.uid)}};
  if (request.path.size() > 2 && request.path[1] == "vgpus") span.attributes.emplace_back("vgpu", request.path[2]);
  return span;
}

nlohmann::json to_otlp(const std::vector<Span>& spans) {
  auto list = nlohmann::json::array();
  for (const Span& span : spans) list.push_back(to_json(span));
  const nlohmann::json scope = {{"scope", {{"name", "bandsaw"}}}, {"spans", std::move(list)}};
  const nlohmann::json resource = {{"attributes", {attribute("service.name", "vgpud")}}};
  return {{"resourceSpans", {{{"resource", resource}, {"scopeSpans", {scope}}}}}};
}

SpanExporter::SpanExporter(event_base* base, std::string address, uint16_t port)
    : base_(base), address_(std::move(address)), port_(port) {
  timer_.reset(
      evtimer_new(base, [](evutil_socket_t, short, void* self) { static_cast<SpanExporter*>(self)->post(); }, this));
}

SpanExporter::~SpanExporter() {
  if (request_) evhttp_cancel_request(request_);
}

void SpanExporter::add(Span span) {
  if (waiting_.size() >= kMost) {
    ++dropped_;
    return;
  }
  waiting_.push_back(std::move(span));
  if (!under_way_ && !evtimer_pending(timer_.get(), nullptr)) evtimer_add(timer_.get(), &kGather);
}

HttpServer::Handler SpanExporter::traced(HttpServer::Handler handler) {
  return [this, handler = std::move(handler)](const HttpRequest& request, HttpServer::Answer answer) {
    if (request.method == "GET") return handler(request, std::move(answer));
    handler(request, [this, span = span_of(request), answer = std::move(answer)](const HttpAnswer& given) mutable {
      span.end_ns = now_ns();
      span.status = given.code;
      add(std::move(span));
      answer(given);
    });
  };
}

void SpanExporter::post() {
  const std::string body =
      to_otlp(std::exchange(waiting_, {})).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  evhttp_connection* const connection = evhttp_connection_base_new(base_, nullptr, address_.c_str(), port_);
  request_ = evhttp_request_new(
      [](evhttp_request* request, void* self) {
        static_cast<SpanExporter*>(self)->posted(request ? evhttp_request_get_response_code(request) : 0);
      },
      this);
  evhttp_connection_set_timeout(connection, kTimeoutS);
  evhttp_connection_free_on_completion(connection);
  evkeyvalq* const headers = evhttp_request_get_output_headers(request_);
  evhttp_add_header(headers, "Host", fmt::format("{}:{}", address_, port_).c_str());
  evhttp_add_header(headers, "Content-Type", "application/json");
  evhttp_add_header(headers, "Connection", "close");
  evbuffer_add(evhttp_request_get_output_buffer(request_), body.data(), body.size());
  under_way_ = true;
  if (evhttp_make_request(connection, request_, EVHTTP_REQ_POST, "/v1/traces") == 0) return;
  evhttp_connection_free(connection);
  posted(0);
}

// `code`: of HTTP; 0: there was no answer.
void SpanExporter::posted(int code) {
  request_ = nullptr;
  under_way_ = false;
  const bool silent = code / 100 != 2;
  if (silent != std::exchange(silent_, silent)) {
    if (silent)
      log::warn("the collector of traces at {}:{} does not take them ({}): they are dropped until it does", address_,
                port_, code == 0 ? "no answer" : fmt::format("status {}", code));
    else
      log::info("the collector of traces at {}:{} takes them again", address_, port_);
  }
  if (const uint64_t dropped = std::exchange(dropped_, 0); dropped > 0)
    log::warn("{} spans were dropped: more than {} waited", dropped, kMost);
  if (!waiting_.empty()) evtimer_add(timer_.get(), &kGather);
}

}  // namespace bandsaw
