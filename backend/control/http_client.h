// One blocking HTTP/1.1 request over a Unix socket: what vgpuctl needs of a client.
#pragma once

#include <chrono>
#include <string>

#include "memory/base/status.h"

namespace bandsaw {

struct HttpReply {
  int code = 0;  // HTTP status
  std::string body;
};

// Errors: ENOENT or ECONNREFUSED when nobody listens, EACCES, ETIMEDOUT, EPROTO for a reply that is not HTTP. The
// reply's body is at most 16 MiB.
Result<HttpReply> http_request(const std::string& socket_path, const std::string& method, const std::string& target,
                               const std::string& body, std::chrono::seconds timeout);

}  // namespace bandsaw
