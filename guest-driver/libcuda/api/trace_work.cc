// What a traced wire call puts on its stream, in words and figures.
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/api/tracer.h"
#include "guest-driver/libcuda/core/context.h"

namespace bandsaw::libcuda {
namespace {

std::string demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

uint32_t side_of(const vgpu_copy_end& end) {
  if (end.kind == VGPU_MEMORY_ARRAY) return BANDSAW_SIDE_ARRAY;
  if (end.kind == VGPU_MEMORY_DEVICE) return BANDSAW_SIDE_DEVICE;
  const auto range = AddressMap::get().find(end.address);
  return range && (range->kind == RangeKind::kHost || range->kind == RangeKind::kRegistered) ? BANDSAW_SIDE_PINNED
                                                                                             : BANDSAW_SIDE_PAGEABLE;
}

const char* word_of(uint32_t side) {
  return side == BANDSAW_SIDE_ARRAY ? "array" : side == BANDSAW_SIDE_DEVICE ? "device" : "host";
}

void describe_launch(const FunctionRecord& function, const vgpu_launch& launch, TracedPiece* piece) {
  bandsaw_traced_work& about = piece->work;
  about.kind = BANDSAW_WORK_KERNEL;
  std::memcpy(about.grid, launch.grid, sizeof(about.grid));
  std::memcpy(about.block, launch.block, sizeof(about.block));
  std::memcpy(about.cluster, launch.cluster, sizeof(about.cluster));
  about.registers = static_cast<uint32_t>(function.attribute(CU_FUNC_ATTRIBUTE_NUM_REGS));
  about.static_shared = static_cast<uint32_t>(function.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  about.local = static_cast<uint32_t>(function.attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  about.dynamic_shared = launch.shared_bytes;
  piece->kernel = function.name;
  piece->title = demangled(function.name);
}

void describe_copy(uint32_t source, uint32_t destination, TracedPiece* piece) {
  piece->work.kind = BANDSAW_WORK_COPY;
  piece->work.source = source;
  piece->work.destination = destination;
  piece->title = std::string("copy ") + word_of(source) + " to " + word_of(destination);
}

}  // namespace

void describe_work(wire::Opcode opcode, uint64_t context, const EngineWork& work, TracedPiece* piece) {
  const Context* const current = current_context();
  const bool known = current && current->handle == context;
  piece->work.context = known ? current->id : context;
  piece->work.device = known ? static_cast<uint32_t>(current->device) : 0;
  piece->work.stream = stream_id(work.stream);
  piece->work.bytes = work.bytes;
  piece->title = wire::kCalls[static_cast<uint32_t>(opcode)].name;
  if (work.source) {
    describe_copy(side_of(*work.source), side_of(*work.destination), piece);
  } else if (opcode == wire::Opcode::kCopyIn) {
    describe_copy(BANDSAW_SIDE_PAGEABLE, BANDSAW_SIDE_DEVICE, piece);
  } else if (opcode == wire::Opcode::kCopyOut) {
    describe_copy(BANDSAW_SIDE_DEVICE, BANDSAW_SIDE_PAGEABLE, piece);
  } else if (opcode == wire::Opcode::kExecLaunch) {
    piece->work.kind = BANDSAW_WORK_GRAPH;
    piece->title = piece->kernel = "graph";
  } else if (work.fill) {
    piece->work.kind = BANDSAW_WORK_FILL;
    piece->work.value = work.fill->value;
    piece->work.destination = BANDSAW_SIDE_DEVICE;
  } else if (const FunctionRecord* const function = work.launch ? find_function(work.code) : nullptr) {
    describe_launch(*function, *work.launch, piece);
  }
}

}  // namespace bandsaw::libcuda
