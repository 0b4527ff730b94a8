#include "tests/unit/soft/codegen_harness.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {

struct BlockState;

namespace test {
namespace {

constexpr size_t kStackBytes = 1 << 20;

struct Fiber {
  WarpState warp{};
  ucontext_t context{};
  std::vector<char> stack;
  bool done = false;
  // Waiting at a barrier: which one, and until which round of it.
  bool waiting = false;
  uint32_t barrier = 0, round = 0, result = 0;
};

struct Barrier {
  uint32_t arrived = 0, round = 0, all = 1, any = 0, count = 0;
  uint32_t last_result = 0;
};

struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::map<uint32_t, Barrier> barriers;
  std::vector<std::byte> shared, local;
};

struct Run {
  ucontext_t scheduler{};
  Fiber* current = nullptr;
  Outcome outcome;
  KernelEntry entry = nullptr;
  uint32_t cancelled = 0;
};
Run* volatile g_run = nullptr;

uint32_t block_threads(Block* b) {
  uint32_t n = 0;
  for (auto& f : b->fibers) n += f->done ? 0 : __builtin_popcount(f->warp.live);
  return n;
}

void complete(Block* block, Barrier* b, BarrierOp op) {
  b->last_result = op == BarrierOp::kPopc ? b->count : op == BarrierOp::kAnd ? b->all : b->any;
  b->arrived = 0;
  b->all = 1;
  b->any = b->count = 0;
  ++b->round;
}

void suspend() { swapcontext(&g_run->current->context, &g_run->scheduler); }

void start() {
  Fiber* f = g_run->current;
  g_run->entry(&f->warp);
  f->done = true;
  setcontext(&g_run->scheduler);
}

}  // namespace

void* device_memory() {
  static void* memory = [] {
    void* window = mmap(reinterpret_cast<void*>(VGPU_WINDOW_BASE_0), VGPU_WINDOW_BYTES, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (window == MAP_FAILED) abort();
    void* device = reinterpret_cast<char*>(window) + VGPU_WINDOW_DEVICE_OFFSET;
    if (mprotect(device, kDeviceBytes, PROT_READ | PROT_WRITE) != 0) abort();
    return device;
  }();
  return memory;
}

void cancel() {
  if (g_run) g_run->cancelled = 1;
}

void fault(uint64_t address) {
  if (!g_run) abort();
  bandsaw_fault(&g_run->current->warp, uint32_t(Fault::kIllegalAddress), address);
}

uint64_t window_base() {
  device_memory();
  return VGPU_WINDOW_BASE_0;
}

static size_t g_used = 0;
void reset_memory() {
  std::memset(device_memory(), 0, g_used);
  g_used = 0;
}
void* allocate(size_t bytes) {
  size_t at = (g_used + 255) / 256 * 256;
  if (at + bytes > kDeviceBytes) abort();
  g_used = at + bytes;
  return static_cast<char*>(device_memory()) + at;
}

Kernels::Kernels(std::string_view ptx, const std::string& cpu, bool one_by_one, CompileOptions::Passes passes)
    : Kernels(ptx, CompileOptions{.functions_at_once = one_by_one ? 0 : CompileOptions().functions_at_once,
                                  .cpu = cpu,
                                  .passes = passes}) {}

Kernels::Kernels(std::string_view ptx, CompileOptions options) {
  options.window_base = window_base();
  program_ = compile(ptx, options, &log_);
  if (!program_) return;
  std::map<std::string, uint64_t> addresses;
  for (auto& v : program_->variables()) {
    auto* p = static_cast<char*>(allocate(std::max<uint64_t>(16, v.bytes)));
    for (auto& piece : v.initial) std::memcpy(p + piece.offset, piece.bytes.data(), piece.bytes.size());
    addresses[v.name] = reinterpret_cast<uint64_t>(p);
  }
  loaded_ = program_->load(addresses, &log_);
  if (!loaded_) return;
  const auto start = [this](const std::string& name, const std::string&, const Program::Loaded::Make& make) {
    started_.push_back(name);
    void* made = nullptr;
    std::thread([&] { made = make(&log_); }).join();
    return [made] { return made; };
  };
  loaded_->compile_by(start, 2);
  for (auto& v : program_->variables()) {
    for (auto& pointer : v.pointers) {
      auto it = addresses.find(pointer.target);
      uint64_t value =
          (it != addresses.end() ? it->second : loaded_->function_address(pointer.target)) + pointer.addend;
      std::memcpy(reinterpret_cast<char*>(addresses[v.name]) + pointer.offset, &value, 8);
    }
  }
  addresses_ = addresses;
}

Kernels::~Kernels() = default;

uint64_t Kernels::address(const std::string& variable) const { return addresses_.at(variable); }

void Kernels::append(std::vector<std::byte>* to, const void* value, size_t bytes, size_t align) {
  to->resize((to->size() + align - 1) / align * align);
  auto* p = static_cast<const std::byte*>(value);
  to->insert(to->end(), p, p + bytes);
}

static void make_block(Block* block, const Shape& s, const uint32_t at[3], const KernelCode& k,
                       const std::vector<std::byte>& parameters, uint64_t workspace) {
  uint32_t threads = s.block[0] * s.block[1] * s.block[2], warps = (threads + 31) / 32;
  uint32_t local = (k.local_bytes + 15) / 16 * 16;
  uint32_t shared = k.static_shared_bytes + s.dynamic_shared;
  block->shared.resize(shared + kSharedPadding + 64);
  block->local.resize(static_cast<size_t>(warps) * kWarpLanes * local + 64);
  auto aligned = [](std::vector<std::byte>& v) {
    return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(v.data()) + 63) / 64 * 64);
  };
  for (uint32_t w = 0; w < warps; ++w) {
    auto f = std::make_unique<Fiber>();
    WarpState& state = f->warp;
    for (uint32_t l = 0; l < 32; ++l) {
      uint32_t t = w * 32 + l;
      state.tid_x[l] = t % s.block[0];
      state.tid_y[l] = t / s.block[0] % s.block[1];
      state.tid_z[l] = t / s.block[0] / s.block[1];
      if (t < threads) state.live |= 1u << l;
    }
    for (int i = 0; i < 3; ++i) {
      state.ntid[i] = s.block[i];
      state.ctaid[i] = at[i];
      state.nctaid[i] = s.grid[i];
      state.cluster[i] = 1;
    }
    state.warp_id = w;
    state.warps = warps;
    state.grid_id = 1;
    state.shared_bytes = shared;
    state.dynamic_shared_bytes = s.dynamic_shared;
    state.dynamic_shared_base = k.static_shared_bytes;
    state.local_bytes = local;
    state.shared = aligned(block->shared);
    state.local = aligned(block->local) + static_cast<size_t>(w) * kWarpLanes * local;
    state.parameters = parameters.data();
    state.parameter_bytes = static_cast<uint32_t>(parameters.size());
    state.window_base = window_base();
    state.block = reinterpret_cast<BlockState*>(block);
    state.cancelled = &g_run->cancelled;
    state.cooperative = s.cooperative;
    state.textures = s.textures;
    state.grid_workspace = workspace;
    f->stack.resize(kStackBytes);
    state.stack_limit = reinterpret_cast<uint64_t>(f->stack.data()) + 128 * 1024;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack.data();
    f->context.uc_stack.ss_size = f->stack.size();
    makecontext(&f->context, start, 0);
    block->fibers.push_back(std::move(f));
  }
}

// Gives every fiber turns until all are done, a fault happened, or nothing moves.
static void run_blocks(Run* run, std::vector<std::unique_ptr<Block>>& blocks) {
  for (bool moved = true; moved && !run->outcome.fault;) {
    moved = false;
    for (auto& block : blocks) {
      for (auto& f : block->fibers) {
        if (f->done) continue;
        if (f->waiting && block->barriers[f->barrier].round == f->round) continue;
        f->waiting = false;
        run->current = f.get();
        moved = true;
        swapcontext(&run->scheduler, &f->context);
        if (run->outcome.fault) return;
        if (f->done) {  // fewer threads to wait for
          for (auto& [id, b] : block->barriers)
            if (b.arrived && b.arrived >= block_threads(block.get())) complete(block.get(), &b, BarrierOp::kSync);
        }
      }
    }
  }
  for (auto& block : blocks)
    for (auto& f : block->fibers)
      if (!f->done) run->outcome.stuck = true;
}

Outcome Kernels::run(const std::string& kernel, const Shape& shape, const std::vector<std::byte>& parameters) {
  std::string log;
  const KernelCode* code = program_->kernel(kernel, &log);
  if (!code) {
    ADD_FAILURE() << "no kernel " << kernel << ": " << log;
    return {};
  }
  Run run;
  g_run = &run;
  run.entry = loaded_->entry(kernel, &log);
  if (!run.entry) {
    ADD_FAILURE() << log;
    return {};
  }
  auto* workspace = shape.cooperative ? static_cast<uint64_t*>(allocate(64)) : nullptr;
  if (workspace) *workspace = 0;
  std::vector<std::unique_ptr<Block>> blocks;
  for (uint32_t z = 0; z < shape.grid[2]; ++z)
    for (uint32_t y = 0; y < shape.grid[1]; ++y)
      for (uint32_t x = 0; x < shape.grid[0] && !run.outcome.fault; ++x) {
        uint32_t at[3] = {x, y, z};
        blocks.push_back(std::make_unique<Block>());
        make_block(blocks.back().get(), shape, at, *code, parameters, reinterpret_cast<uint64_t>(workspace));
        if (shape.cooperative) continue;
        run_blocks(&run, blocks);
        blocks.clear();
      }
  if (shape.cooperative) run_blocks(&run, blocks);
  g_run = nullptr;
  return run.outcome;
}

}  // namespace test

using namespace test;

extern "C" {
void bandsaw_fault(WarpState*, uint32_t fault, uint64_t address) {
  g_run->outcome.fault = fault;
  g_run->outcome.fault_address = address;
  setcontext(&g_run->scheduler);
  abort();
}
void bandsaw_cancelled(WarpState* warp) { bandsaw_fault(warp, 1, 0); }
uint32_t bandsaw_barrier(WarpState* warp, uint32_t id, uint32_t threads, uint32_t lanes, uint32_t op,
                         uint32_t predicate) {
  auto* block = reinterpret_cast<Block*>(warp->block);
  Barrier& b = block->barriers[id];
  b.arrived += static_cast<uint32_t>(__builtin_popcount(lanes));
  b.all &= (predicate & lanes) == lanes;
  b.any |= (predicate & lanes) != 0;
  b.count += static_cast<uint32_t>(__builtin_popcount(predicate & lanes));
  uint32_t needed = threads ? threads : block_threads(block);
  if (b.arrived >= needed) {
    complete(block, &b, BarrierOp(op));
    return b.last_result;
  }
  if (BarrierOp(op) == BarrierOp::kArrive) return 0;
  Fiber* f = g_run->current;
  f->waiting = true;
  f->barrier = id;
  f->round = b.round;
  suspend();
  return b.last_result;
}
void bandsaw_cluster_arrive(WarpState*, uint32_t) {}
void bandsaw_cluster_wait(WarpState*) {}
void bandsaw_warpgroup(WarpState* warp) {
  const uint32_t group = warp->warp_id / 4, warps = std::min(4u, warp->warps - group * 4);
  bandsaw_barrier(warp, 16 + group, warps * kWarpLanes, ~0u, uint32_t(BarrierOp::kSync), 0);
}
void bandsaw_exit(WarpState*) {}
void bandsaw_yield(WarpState* warp) {
  if (++g_run->outcome.yields > 100000) bandsaw_fault(warp, 2, 0);
  suspend();
}
void* bandsaw_translate(WarpState* warp, uint64_t address, uint32_t) {
  bandsaw_fault(warp, uint32_t(Fault::kIllegalAddress), address);
}
int32_t bandsaw_vprintf(WarpState*, uint32_t, const char* format, const std::byte* arguments, uint32_t) {
  g_run->outcome.printed += format;
  int32_t first;
  std::memcpy(&first, arguments, 4);
  g_run->outcome.printed += std::to_string(first) + ";";
  return 1;
}
void bandsaw_assert(WarpState* warp, uint32_t lane, const char* message, const char*, uint32_t line, const char*) {
  g_run->outcome.printed += std::string(message) + ":" + std::to_string(line) + ":" + std::to_string(lane);
  bandsaw_fault(warp, uint32_t(Fault::kAssert), 0);
}
uint64_t bandsaw_malloc(WarpState*, uint64_t bytes) { return reinterpret_cast<uint64_t>(allocate(bytes)); }
void bandsaw_free(WarpState*, uint64_t) {}
// Answers with what came: the call, and its third word.
void bandsaw_device_call(WarpState*, uint32_t, DeviceCall call, const uint64_t* words, DeviceAnswer* answer) {
  answer->value = static_cast<uint64_t>(call) + 1000 * words[2];
}
}

}  // namespace bandsaw::soft
