// Turns memory faults of compiled kernels, and of copies on behalf of the guest, into errors of the launch.
//
// One process-wide handler for SIGSEGV, SIGBUS and SIGFPE (the system knows only one); it acts on threads that
// said what they run, and passes everything else on to the handler that was there before, so that a fault of our
// own code still ends the process.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>

namespace bandsaw::soft {

class Worker;

// On a worker thread, for its lifetime: an alternate signal stack, and faults of compiled code abandon the fiber.
class FaultThread {
 public:
  explicit FaultThread(Worker& worker);
  ~FaultThread();
  FaultThread(const FaultThread&) = delete;
  FaultThread& operator=(const FaultThread&) = delete;

 private:
  std::byte* stack_;
};

// Makes the handler known to the system; cheap when it is.
void install_fault_handler();

// Runs `action(argument)`; false if it touched an address in [begin, begin + bytes) or one of two ranges that is
// not mapped. The action must hold nothing that needs a destructor. Any thread.
struct GuardedRange {
  uint64_t begin = 0, bytes = 0;
};
bool run_guarded(const GuardedRange (&ranges)[2], void (*action)(void*), void* argument, uint64_t* fault_address);

// memcpy between addresses that may not be mapped; false if they are not.
bool copy_guarded(void* to, const void* from, size_t bytes);

}  // namespace bandsaw::soft
