#include "backend/device/soft/fault.h"

#include <cuda.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <xmmintrin.h>

#include <cstring>
#include <mutex>

#include "backend/device/soft/executor.h"
#include "backend/device/soft/warp.h"
#include "guest-driver/uapi/vgpu_control.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace bandsaw::soft {

namespace {

constexpr size_t kSignalStackBytes = 64 * 1024;
constexpr unsigned kDefaultFloatControl = 0x1f80;  // all exceptions masked, round to nearest

struct Guard {
  const GuardedRange* ranges;
  void* where[5];  // for __builtin_setjmp
  volatile uint64_t address;
};

thread_local Worker* t_worker = nullptr;
thread_local Guard* t_guard = nullptr;

struct sigaction g_previous[3];  // SIGSEGV, SIGBUS, SIGFPE
constexpr int kSignals[3] = {SIGSEGV, SIGBUS, SIGFPE};

bool in_guarded(const Guard& guard, uint64_t address) {
  for (int i = 0; i < 2; ++i) {
    if (address - guard.ranges[i].begin < guard.ranges[i].bytes) return true;
  }
  return false;
}

// Where a thread goes on after a fault: the handler only points the interrupted code here and returns, so that the
// thread is out of its signal handler before it changes stacks.
[[noreturn]] void leave_guard(Guard* guard) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_handle_no_return();
#endif
  __builtin_longjmp(guard->where, 1);
}

[[noreturn]] void leave_fiber(Worker* worker) {
  _mm_setcsr(kDefaultFloatControl);
  abandon_stack(worker->thread_point());
}

template <typename T>
void go_on_at(void* context, void (*where)(T*), T* argument, uint64_t stack) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RIP] = reinterpret_cast<greg_t>(where);
  registers[REG_RDI] = reinterpret_cast<greg_t>(argument);
  registers[REG_RSP] = static_cast<greg_t>((stack & ~uint64_t{15}) - 8);  // as after a call
  registers[REG_EFL] &= ~greg_t{0x400};                                   // direction flag
}

bool guard_takes(uint64_t address, bool memory, void* context) {
  Guard* guard = t_guard;
  if (!guard || !memory || !in_guarded(*guard, address)) return false;
  guard->address = address;
  const auto stack = static_cast<uint64_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
  go_on_at(context, leave_guard, guard, stack - 256);  // below the red zone
  return true;
}

bool fiber_takes(uint64_t address, bool memory, void* context) {
  Worker* worker = t_worker;
  if (!worker || !worker->current) return false;
  uint32_t fault = CUDA_ERROR_LAUNCH_FAILED;
  if (!(memory && worker->current->in_guard(address))) {
    const bool in_window = address - worker->window_base < VGPU_WINDOW_BYTES;
    if (!worker->in_compiled && !(memory && in_window)) return false;
    if (memory) fault = CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  worker->fault = fault;
  worker->fault_address = address;
  worker->fault_warp = worker->running_warp;
  worker->in_compiled = false;
  const Suspended& fiber = worker->current->point();  // its frames are given up: begin at the top
  go_on_at(context, leave_fiber, worker, reinterpret_cast<uint64_t>(fiber.stack_bottom) + fiber.stack_bytes - 64);
  return true;
}

void handle(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  const bool memory = signal != SIGFPE;
  if (guard_takes(address, memory, context) || fiber_takes(address, memory, context)) return;
  // Not ours: put the old handler back; the faulting instruction runs again and meets it.
  for (int i = 0; i < 3; ++i) {
    if (kSignals[i] == signal) ::sigaction(signal, &g_previous[i], nullptr);
  }
}

}  // namespace

void install_fault_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &action, &g_previous[i]);
  });
}

FaultThread::FaultThread(Worker& worker) {
  install_fault_handler();
  void* at = ::mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_ = at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  if (stack_) {
    stack_t stack{};
    stack.ss_sp = stack_;
    stack.ss_size = kSignalStackBytes;
    ::sigaltstack(&stack, nullptr);
  }
  t_worker = &worker;
}

FaultThread::~FaultThread() {
  t_worker = nullptr;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
  if (stack_) ::munmap(stack_, kSignalStackBytes);
}

__attribute__((noinline)) bool run_guarded(const GuardedRange (&ranges)[2], void (*action)(void*), void* argument,
                                           uint64_t* fault_address) {
  install_fault_handler();
  Guard guard{ranges, {}, 0};
  Guard* outer = t_guard;
  Guard* volatile mine = &guard;
  if (__builtin_setjmp(guard.where)) {
    t_guard = outer;
    *fault_address = mine->address;
    return false;
  }
  t_guard = &guard;
  action(argument);
  t_guard = outer;
  return true;
}

bool copy_guarded(void* to, const void* from, size_t bytes) {
  struct Ends {
    void* to;
    const void* from;
    size_t bytes;
  } ends{to, from, bytes};
  uint64_t address = 0;
  return run_guarded(
      {{reinterpret_cast<uint64_t>(to), bytes}, {reinterpret_cast<uint64_t>(from), bytes}},
      [](void* argument) {
        const Ends& copy = *static_cast<const Ends*>(argument);
        std::memcpy(copy.to, copy.from, copy.bytes);
      },
      &ends, &address);
}

}  // namespace bandsaw::soft
