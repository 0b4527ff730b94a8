#include "backend/device/soft/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#error "the software device's fibers are written for x86-64"
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BANDSAW_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define BANDSAW_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define BANDSAW_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define BANDSAW_TSAN 1
#endif
#if defined(BANDSAW_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(BANDSAW_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

// Callee-saved registers of the System V ABI go on the stack, then the stacks are exchanged. The floating-point
// control words are the same for all fibers of a worker, so they stay.
asm(R"(
.text
.p2align 4
.globl bandsaw_switch_stack
.hidden bandsaw_switch_stack
.type bandsaw_switch_stack, @function
bandsaw_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size bandsaw_switch_stack, .-bandsaw_switch_stack

.p2align 4
.globl bandsaw_fiber_start
.hidden bandsaw_fiber_start
.type bandsaw_fiber_start, @function
bandsaw_fiber_start:
  movq %r12, %rdi
  movq %r13, %rsi
  call bandsaw_fiber_first
  ud2
.size bandsaw_fiber_start, .-bandsaw_fiber_start
)");

extern "C" {
void bandsaw_switch_stack(void** save, void* load) __attribute__((visibility("hidden")));
void bandsaw_fiber_start() __attribute__((visibility("hidden")));

// The first C++ frame of a fiber.
__attribute__((used, visibility("hidden"))) void bandsaw_fiber_first(void (*body)(void*), void* argument) {
#if defined(BANDSAW_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  body(argument);
}
}

namespace bandsaw::soft {

void describe_thread_stack(Suspended* thread) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    void* bottom = nullptr;
    size_t bytes = 0;
    pthread_attr_getstack(&attributes, &bottom, &bytes);
    pthread_attr_destroy(&attributes);
    thread->stack_bottom = bottom;
    thread->stack_bytes = bytes;
  }
#if defined(BANDSAW_TSAN)
  thread->tsan_fiber = __tsan_get_current_fiber();
#endif
}

void switch_stack(Suspended& from, Suspended& to) {
#if defined(BANDSAW_ASAN)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack_bottom, to.stack_bytes);
#endif
#if defined(BANDSAW_TSAN)
  __tsan_switch_to_fiber(to.tsan_fiber, 0);
#endif
  bandsaw_switch_stack(&from.stack_pointer, to.stack_pointer);
#if defined(BANDSAW_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

// Not instrumented: the sanitizer's own stack of this fiber is gone before the switch.
__attribute__((no_sanitize_address)) void abandon_stack(Suspended& to) {
#if defined(BANDSAW_ASAN)
  __sanitizer_start_switch_fiber(nullptr, to.stack_bottom, to.stack_bytes);
#endif
#if defined(BANDSAW_TSAN)
  __tsan_switch_to_fiber(to.tsan_fiber, 0);
#endif
  void* nowhere = nullptr;
  bandsaw_switch_stack(&nowhere, to.stack_pointer);
  __builtin_unreachable();
}

std::unique_ptr<Fiber> Fiber::make() {
  void* at = ::mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  ::mprotect(at, kGuardBytes, PROT_NONE);
  return std::unique_ptr<Fiber>(new Fiber(static_cast<std::byte*>(at)));
}

Fiber::Fiber(std::byte* stack) : stack_(stack) {
  point_.stack_bottom = stack_ + kGuardBytes;
  point_.stack_bytes = kStackBytes;
}

Fiber::~Fiber() {
#if defined(BANDSAW_TSAN)
  if (point_.tsan_fiber) __tsan_destroy_fiber(point_.tsan_fiber);
#endif
  ::munmap(stack_, kGuardBytes + kStackBytes);
  if (local_) ::munmap(local_, local_bytes_);
}

void Fiber::prepare(Body body, void* argument) {
#if defined(BANDSAW_ASAN)
  __asan_unpoison_memory_region(point_.stack_bottom, kStackBytes);
  point_.fake_stack = nullptr;
#endif
#if defined(BANDSAW_TSAN)
  if (point_.tsan_fiber) __tsan_destroy_fiber(point_.tsan_fiber);
  point_.tsan_fiber = __tsan_create_fiber(0);
#endif
  // From the top: the start routine as return address, then rbp, rbx, r12 (body), r13 (argument), r14, r15.
  auto** top = reinterpret_cast<void**>(stack_ + kGuardBytes + kStackBytes);
  *--top = nullptr;
  *--top = nullptr;  // keeps the start routine's stack pointer aligned to 16
  *--top = reinterpret_cast<void*>(&bandsaw_fiber_start);
  *--top = nullptr;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(body);
  *--top = argument;
  *--top = nullptr;
  *--top = nullptr;
  point_.stack_pointer = top;
}

bool Fiber::in_guard(uint64_t address) const {
  const uint64_t begin = reinterpret_cast<uint64_t>(stack_);
  return address >= begin && address < begin + kGuardBytes;
}

std::byte* Fiber::local(size_t bytes) {
  if (bytes <= local_bytes_) return local_;
  const size_t wanted = (bytes + 65535) & ~size_t{65535};
  void* at = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  if (local_) ::munmap(local_, local_bytes_);
  local_ = static_cast<std::byte*>(at);
  local_bytes_ = wanted;
  return local_;
}

}  // namespace bandsaw::soft
