#include "guest-driver/libcuda/core/managed_mode.h"

#include <cstdlib>
#include <cstring>

#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {
namespace {

// For comparing the two ways, and for whom moving does not suit.
bool may_move() {
  const char* const text = std::getenv("BANDSAW_MANAGED");
  if (!text || std::strcmp(text, "move") == 0) return true;
  if (std::strcmp(text, "stay") == 0) return false;
  notice("BANDSAW_MANAGED is \"%s\": \"move\" and \"stay\" are possible; managed memory moves", text);
  return true;
}

}  // namespace

bool managed_memory_moves(VirtualGpu& gpu) {
  static const bool move = may_move();
  if (!move || gpu_count() > 1 || gpu.calls.opcode(wire::Opcode::kSettle) == 0) return false;
  const char* why = "";
  if (gpu.transport->page_guard(&why)) return true;
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) log(Level::kInfo, "managed memory stays in the program's memory: %s", why);
  return false;
}

}  // namespace bandsaw::libcuda
