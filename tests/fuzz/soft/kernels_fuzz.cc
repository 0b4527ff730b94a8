// PTX of a guest, compiled and run: any module ends in refusals, or its kernels end, and touch nothing but what is
// theirs. Lines of the seeds (tests/unit/ptx/samples, tests/unit/soft/samples) are exchanged, because few other bytes
// are PTX.
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"
#include "tests/unit/soft/codegen_harness.h"

namespace {

using namespace bandsaw::soft;

constexpr uint32_t kMostLocal = 64 << 10, kMostShared = 200 << 10;  // of one thread; what a block may have
constexpr size_t kMostText = 16 << 10;                              // compilers are slow on large modules
constexpr int kKernelMs = 200;

// Outside of the window: the kernel reached what is not its own.
void on_segv(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  if (address - test::window_base() >= VGPU_WINDOW_BYTES) std::abort();
  test::fault(address);
}

void catch_signals() {
  struct sigaction segv{};
  segv.sa_sigaction = on_segv;
  segv.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &segv, nullptr);
  ::sigaction(SIGBUS, &segv, nullptr);
  struct sigaction alarm{};
  alarm.sa_handler = [](int) { test::cancel(); };
  ::sigaction(SIGVTALRM, &alarm, nullptr);
}

void set_timer(int ms) {
  const itimerval timer{.it_interval = {0, ms * 1000}, .it_value = {0, ms * 1000}};
  ::setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

// Pointers into device memory where they fit, and numbers.
std::vector<std::byte> parameters(const KernelCode& code, uint64_t seed) {
  std::vector<std::byte> bytes(code.parameter_bytes);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const uint64_t value = seed >> at % 16 & 1 ? seed % 1000 : reinterpret_cast<uint64_t>(test::array<uint64_t>(512));
    std::memcpy(bytes.data() + at, &value, 8);
  }
  return bytes;
}

void run(test::Kernels* kernels, const std::string& name, uint64_t seed) {
  std::string log;
  const KernelCode* code = kernels->program().kernel(name, &log);
  if (!code || code->local_bytes > kMostLocal || code->static_shared_bytes > kMostShared) return;
  if (code->required_cluster[0] > 1) return;  // the harness has none
  test::Shape shape;
  shape.grid[0] = 1 + seed % 2;
  shape.block[0] = std::min(code->max_threads, uint32_t{1} << seed / 2 % 8);
  shape.dynamic_shared = seed / 16 % 2 * 1024;
  set_timer(kKernelMs);
  kernels->run(name, shape, parameters(*code, seed));
  set_timer(0);
}

std::vector<std::string> lines_of(const uint8_t* data, size_t size) {
  std::vector<std::string> lines(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n')
      lines.emplace_back();
    else
      lines.back() += static_cast<char>(data[i]);
  }
  return lines;
}

size_t join(const std::vector<std::string>& lines, uint8_t* to, size_t most) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  if (!text.empty()) text.pop_back();
  const size_t size = std::min(text.size(), most);
  std::memcpy(to, text.data(), size);
  return size;
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  if (random() % 4 == 0) return LLVMFuzzerMutate(data, size, most);
  auto lines = lines_of(data, size);
  const size_t a = random() % lines.size(), b = random() % lines.size();
  switch (random() % 5) {
    case 0:
      std::swap(lines[a], lines[b]);
      break;
    case 1:
      lines.insert(lines.begin() + static_cast<long>(a), std::string(lines[b]));
      break;
    case 2:
      lines.erase(lines.begin() + static_cast<long>(a));
      break;
    default: {  // one line, as bytes
      std::string line = lines[a];
      const size_t length = line.size();
      line.resize(length + 16);
      line.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(line.data()), length, line.size()));
      lines[a] = line;
    }
  }
  return join(lines, data, most);
}

// Lines of both.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* first, size_t first_size, const uint8_t* second,
                                            size_t second_size, uint8_t* out, size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  auto lines = lines_of(first, first_size);
  const auto others = lines_of(second, second_size);
  const size_t from = random() % others.size(), count = std::min<size_t>(1 + random() % 8, others.size() - from);
  lines.insert(lines.begin() + static_cast<long>(random() % lines.size()), others.begin() + static_cast<long>(from),
               others.begin() + static_cast<long>(from + count));
  return join(lines, out, most);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool once = (bandsaw::log::silence(), catch_signals(), true);
  (void)once;
  if (size > kMostText) return 0;
  test::reset_memory();
  test::Kernels kernels({reinterpret_cast<const char*>(data), size});
  if (!kernels.ok()) return 0;
  uint64_t seed = size;
  for (size_t i = 0; i < size; ++i) seed = seed * 31 + data[i];
  for (const std::string& name : kernels.program().kernel_names()) run(&kernels, name, seed);
  return 0;
}
