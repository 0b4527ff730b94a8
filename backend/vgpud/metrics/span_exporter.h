// Sends a span for each change that somebody asks vgpud for to an OpenTelemetry collector.
//
// Spans are gathered for a second and posted as JSON over HTTP. A collector that is not there, or slow, costs nobody
// anything: at most kMost spans wait, and what comes then is dropped. The log says once that it does not answer, and
// once that it does again. A caller's `traceparent` makes the span a part of the caller's trace.
//
// Threads: the event loop's only.
// Source: OpenTelemetry protocol 1.x, "OTLP/HTTP" and its JSON form; W3C Trace Context, "traceparent".
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/vgpud/api/http_server.h"

namespace bandsaw {

struct Span {
  std::string trace_id{}, span_id{}, parent_id{};  // hexadecimal; the last may be empty
  std::string name{};
  int64_t begin_ns = 0, end_ns = 0;  // since 1970
  int status = 0;                    // of HTTP
  std::vector<std::pair<std::string, std::string>> attributes{};
};

// Of a request that has just come: a name without names of virtual GPUs in it, who asks, and where it belongs.
Span span_of(const HttpRequest& request);
nlohmann::json to_otlp(const std::vector<Span>& spans);

class SpanExporter {
 public:
  static constexpr size_t kMost = 1024;

  // `base` outlives this.
  SpanExporter(event_base* base, std::string address, uint16_t port);
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;

  void add(Span span);
  // `handler`, with a span for each request that may change something. It may be called no longer than this lives.
  HttpServer::Handler traced(HttpServer::Handler handler);

 private:
  void post();
  void posted(int code);

  event_base* const base_;
  const std::string address_;
  const uint16_t port_;
  std::vector<Span> waiting_;
  uint64_t dropped_ = 0;
  bool under_way_ = false, silent_ = false;
  evhttp_request* request_ = nullptr;  // under way
  EventPtr timer_;
};

}  // namespace bandsaw
