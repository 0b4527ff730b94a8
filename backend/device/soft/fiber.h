// Stacks of their own for warps, and the switch between them.
//
// A fiber belongs to one worker thread and never leaves it. Abandoning one (switching away for ever) runs no
// destructors on its stack: code that runs on fibers keeps nothing there that needs one while it can be abandoned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace bandsaw::soft {

// One side of a switch: a suspended stack. The remaining fields are what the sanitizers want to know.
struct Suspended {
  void* stack_pointer = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
  void* tsan_fiber = nullptr;
};

// Describes the calling thread's own stack, so that fibers can switch back to it.
void describe_thread_stack(Suspended* thread);

// Suspends the caller into `from` and resumes `to`.
void switch_stack(Suspended& from, Suspended& to);
// Resumes `to`; the caller's stack is given up. Also for use in a signal handler.
[[noreturn]] void abandon_stack(Suspended& to);

class Fiber {
 public:
  using Body = void (*)(void*);
  static constexpr size_t kStackBytes = 8 << 20;    // of which what no warp has reached takes no memory
  static constexpr size_t kGuardBytes = 64 * 1024;  // a compiled warp's frame can be tens of KiB

  static constexpr size_t kReserveBytes = 64 * 1024;

  static std::unique_ptr<Fiber> make();  // nullptr without memory
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch here calls body(argument), which must never return. Forgets what the fiber did before.
  void prepare(Body body, void* argument);
  Suspended& point() { return point_; }
  bool in_guard(uint64_t address) const;
  // The lowest address that compiled code may let its stack reach: what it calls needs the rest.
  uint64_t stack_limit() const { return reinterpret_cast<uint64_t>(stack_) + kGuardBytes + kReserveBytes; }

  // Room for the local memory of the warp that runs here: at least `bytes`, kept from warp to warp.
  std::byte* local(size_t bytes);

  // For the queues of a block runner.
  Fiber* next = nullptr;
  void* owner = nullptr;  // the BlockState whose warps it runs
  uint32_t result = 0;    // of the barrier it waited at

 private:
  explicit Fiber(std::byte* stack);
  std::byte* stack_;  // guard, then stack
  Suspended point_;
  std::byte* local_ = nullptr;
  size_t local_bytes_ = 0;
};

}  // namespace bandsaw::soft
