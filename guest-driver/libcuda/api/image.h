// Loading of code: brings an image into memory that the host sees, and hands the host's log to the program.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "guest-driver/libcuda/api/image_size.h"
#include "guest-driver/libcuda/core/shared_memory.h"

namespace bandsaw::libcuda {

class Call;

// A copy of an image for the time of one load.
class SharedImage {
 public:
  SharedImage() = default;
  ~SharedImage();
  SharedImage(const SharedImage&) = delete;
  SharedImage& operator=(const SharedImage&) = delete;

  // Until the next call that stages something on this thread, it may lie in the call's bounce buffer.
  CUresult fill(Call& call, const Image& image);
  uint64_t address() const { return reinterpret_cast<uint64_t>(address_); }
  uint64_t bytes() const { return bytes_; }

 private:
  SharedBlock block_{};  // of a large one
  std::byte* address_ = nullptr;
  uint64_t bytes_ = 0;
};

// The JIT options of one call. Options that Bandsaw's compiler has no use for are accepted and have no effect.
class JitOptions {
 public:
  // INVALID_VALUE if the arrays are missing, a log's size is given without its buffer, or a cache mode is none.
  CUresult read(unsigned count, const CUjit_option* options, void** values);
  // Writes the log into the program's buffers and what CUDA reports besides into the option values.
  void report(CUresult result, const std::string& log, float milliseconds);

 private:
  struct Buffer {
    char* text = nullptr;
    bool given = false;
    size_t capacity = 0;
    void** size_value = nullptr;  // receives the bytes written
  };
  static void put(const Buffer& buffer, const std::string& text);

  Buffer info_, error_;
  void** wall_time_ = nullptr;
};

// Says, once for each library, whose code the device cannot run, and what can be done; for CUDA_ERROR_NO_BINARY_FOR_GPU
// alone, and gives `result` back. `caller`: what called the driver.
CUresult explain(CUresult result, const void* image, const void* caller);

// Reads a whole file. CUDA_ERROR_FILE_NOT_FOUND or OUT_OF_MEMORY. The text ends in NUL.
CUresult read_file(const char* path, std::vector<char>* bytes);

}  // namespace bandsaw::libcuda
