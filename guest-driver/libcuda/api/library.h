// Libraries and modules as the guest keeps them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/api/image.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

struct ManagedVariableRecord {
  uint64_t address = 0, bytes = 0;
  bool moves = false;  // in ManagedSpace; else a block of the program's memory
};

// A library, or a module (then `context` is set; in the table of libraries: a module with __managed__ variables). What
// `mutex` guards grows as the program asks.
struct CodeRecord {
  uint64_t handle = 0;
  uint64_t context = 0;
  std::map<std::string, ManagedVariableRecord, std::less<>> managed;  // fixed once the record is in the table

  std::mutex mutex;
  std::map<std::string, uint64_t, std::less<>> functions;  // kernels of a library, functions of a module
  std::map<uint32_t, uint64_t> elsewhere;                  // of a library: part -> the same of that device
  // Of a library, in a process with several devices: what those are loaded from that get it later.
  std::vector<std::byte> image;
};

// Finds libraries, and modules, by their handle.
CodeRecord* find_library(uint64_t handle);
CodeRecord* find_module(uint64_t handle);
CodeRecord* add_module(uint64_t handle, uint64_t context);
void forget_module(uint64_t handle);

// Loads into no context. `jit` gets the log. `context`: that of the module for which the library stands, or 0.
CUresult load_library(const Image& image, JitOptions* jit, uint64_t context, CodeRecord** library);
// The library on the call's device, loaded at first use.
CUresult library_on_device(Call& call, CodeRecord* library, uint64_t* handle);
CUresult library_kernel_on_device(Call& call, CodeRecord* library, const char* name, uint64_t* kernel);
CUresult unload_library(CodeRecord* library);

// The kernel of that name; the same handle each time.
CUresult library_kernel(CodeRecord* library, const char* name, uint64_t* kernel);
CUresult library_kernel_names(CodeRecord* library, std::vector<std::string>* names);
// A variable in the current context, managed ones included.
CUresult library_variable(CodeRecord* library, const char* name, CUdeviceptr* address, size_t* bytes);

// All names of a list of which a reply holds a part. ask(first, &count, &bytes): from `first` on, "a\0b\0".
using AskForNames = std::function<CUresult(uint32_t first, uint32_t* count, std::vector<std::byte>* bytes)>;
CUresult list_names(const AskForNames& ask, std::vector<std::string>* names);

// Remembers a variable for copies and pointer attributes.
void add_global(uint64_t address, uint64_t bytes, uint64_t owner, uint64_t context);
void forget_globals_of(uint64_t owner);

}  // namespace bandsaw::libcuda
