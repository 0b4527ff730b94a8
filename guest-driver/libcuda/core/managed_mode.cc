#include "guest-driver/libcuda/core/managed_mode.h"

#include <sys/syscall.h>
#include <unistd.h>

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

managed::WorkTable& managed_work() {
  static managed::WorkTable& table = *new managed::WorkTable;
  return table;
}

uint32_t own_thread() {
  static thread_local const auto id = static_cast<uint32_t>(syscall(SYS_gettid));
  return id;
}

managed::WorkStream work_stream(const Call& call, uint64_t stream) {
  const bool default_one = stream <= VGPU_STREAM_PER_THREAD;
  return {stream, call.context(), default_one, stream == VGPU_STREAM_PER_THREAD ? own_thread() : 0};
}

}  // namespace bandsaw::libcuda
