// Where Prometheus asks: HTTP over TCP, GET /metrics and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/vgpud/api/http_server.h"
#include "memory/base/status.h"

namespace bandsaw {

// "127.0.0.1:9495", "[::1]:9495": an IP address and a port. EINVAL says what is wrong.
Status parse_listen(const std::string& text, std::string* address, uint16_t* port);
// A listening TCP socket. Port 0: any that is free. Errors name the address and what to do.
// Where vgpud may use no network, this says so before anything is given up for a new configuration.
Status check_network(const std::string& address, uint16_t port);

Result<UniqueFd> listen_tcp(const std::string& address, uint16_t port);

class MetricsServer {
 public:
  // Calls its argument once with the metrics as text, at once or later.
  using Collect = std::function<void(std::function<void(std::string)>)>;
  MetricsServer(event_base* base, UniqueFd listener, Collect collect);

 private:
  HttpServer server_;
};

}  // namespace bandsaw
