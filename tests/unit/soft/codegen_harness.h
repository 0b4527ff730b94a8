// Runs compiled kernels on one thread: an executor as small as the contract of warp.h allows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device/soft/compile.h"

namespace bandsaw::soft::test {

struct Shape {
  uint32_t grid[3] = {1, 1, 1}, block[3] = {32, 1, 1};
  uint32_t dynamic_shared = 0;
  bool cooperative = false;  // all blocks at once
  const TextureTable* textures = nullptr;
};

struct Outcome {
  uint32_t fault = 0;  // 0: the kernel ended by itself
  uint64_t fault_address = 0;
  std::string printed;
  uint64_t yields = 0;
  bool stuck = false;  // nothing could run any more
};

// Kernels of any length are compiled in pieces of so many instructions, or of one block with more.
inline CompileOptions in_pieces(size_t instructions) {
  return {.kernel_at_once = 0, .parting_at_once = 0, .piece = instructions};
}

// Device memory of the tests: inside a real address window.
void* device_memory();  // 64 MiB
uint64_t window_base();
inline constexpr uint64_t kDeviceBytes = 64 << 20;

class Kernels {
 public:
  // Fails the current test when the text does not compile.
  // `one_by_one`: functions that pointers name are compiled when they are called, as those of large modules.
  explicit Kernels(std::string_view ptx, const std::string& cpu = "", bool one_by_one = false,
                   CompileOptions::Passes passes = CompileOptions::Passes::kBySize);
  Kernels(std::string_view ptx, CompileOptions options);  // in the window of the tests
  ~Kernels();
  bool ok() const { return program_ != nullptr && loaded_ != nullptr; }
  const std::string& log() const { return log_; }
  Program& program() { return *program_; }
  // What was compiled while kernels ran, in turn: functions apart, pieces.
  const std::vector<std::string>& started() const { return started_; }
  uint64_t address(const std::string& variable) const;
  Outcome run(const std::string& kernel, const Shape& shape, const std::vector<std::byte>& parameters);

  // Packs parameters by their natural alignment.
  template <class... T>
  Outcome launch(const std::string& kernel, const Shape& shape, T... values) {
    std::vector<std::byte> packed;
    (append(&packed, &values, sizeof values, alignof(T)), ...);
    return run(kernel, shape, packed);
  }

 private:
  static void append(std::vector<std::byte>* to, const void* value, size_t bytes, size_t align);
  std::unique_ptr<Program> program_;
  std::unique_ptr<Program::Loaded> loaded_;
  std::map<std::string, uint64_t> addresses_;
  std::vector<std::string> started_;
  std::string log_;
};

// Ends the kernel that runs, as a killed launch ends. A signal handler may call it.
void cancel();
// A signal handler's way out of a kernel that touched `address`.
[[noreturn]] void fault(uint64_t address);

// Typed device arrays, given out one after another; reset() starts over.
void reset_memory();
void* allocate(size_t bytes);
template <class T>
T* array(size_t n) {
  return static_cast<T*>(allocate(n * sizeof(T)));
}

}  // namespace bandsaw::soft::test
