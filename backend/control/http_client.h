// One blocking HTTP request over a Unix socket, through libcurl.
#pragma once

#include <chrono>
#include <string>

#include "memory/base/status.h"

namespace bandsaw {

struct HttpReply {
  int code = 0;  // HTTP status
  std::string body;
};

// Errors: ENOENT or ECONNREFUSED when nobody listens, EACCES, ETIMEDOUT, EPROTO for a reply that is not HTTP or whose
// body is larger than 16 MiB. `timeout` is for all of it. `target` is sent as it is: path and query, escaped.
Result<HttpReply> http_request(const std::string& socket_path, const std::string& method, const std::string& target,
                               const std::string& body, std::chrono::seconds timeout);

// `text` as one part of a path.
std::string url_escaped(const std::string& text);

}  // namespace bandsaw
