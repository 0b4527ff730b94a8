// A session's answers to vgpud, as one that has been taken over would give them. What must hold: what passes the check
// can be read as vgpud reads it, and written for an administrator.
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "backend/vgpud/sessions/session_reply.h"
#include "memory/base/json.h"
#include "memory/base/log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bandsaw;
  using nlohmann::json;
  log::silence();
  const json reply = parse_json({reinterpret_cast<const char*>(data), size});
  if (reply.is_discarded() || !check_reply(reply).ok()) return 0;
  (void)reply.value("mps", std::string());
  (void)reply.value("failing", std::string());
  (void)reply.value("memory_used", int64_t{0});
  (void)reply.value("processes", json::array()).empty();
  (void)reply.value("/vm/connected"_json_pointer, false);
  (void)json_text({{"name", "web0"}, {"live", reply}});
  return 0;
}
