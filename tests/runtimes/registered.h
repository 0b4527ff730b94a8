// What nvcc writes into a program so that the runtime knows its device code, by hand, and short names for the tests.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name, int limit, void* thread,
                            void* block, void* block_size, void* grid_size, int* warp_size);
void __cudaRegisterVar(void** handle, char* host, char* device, const char* name, int external, size_t bytes,
                       int constant, int global);
void __cudaRegisterManagedVar(void** handle, void** host, char* device, const char* name, int external, size_t bytes,
                              int constant, int global);
char __cudaInitModule(void** handle);
}

// Stand for the kernels and variables of kernels.cu, by their addresses.
void scale();
void add_one();
void count();
void sum_shared();
void fetch();
extern int factor, offsets[16], *counted;

// Registers all of these with the runtime that the program is linked with; call before anything else.
void register_device_code();

struct Failure {
  std::string what;
  bool refused = false;  // the call said that it is not supported
};

void check(cudaError_t error, const char* call);
void expect(bool right, const char* what);
#define CHECK(call) check(call, #call)
#define EXPECT(condition) expect(condition, #condition)

template <typename... Arguments>
void launch(void (*kernel)(), unsigned grid, unsigned block, size_t shared, cudaStream_t stream,
            Arguments... arguments) {
  void* addresses[] = {&arguments..., nullptr};
  check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3{grid, 1, 1}, dim3{block, 1, 1}, addresses, shared,
                         stream),
        "cudaLaunchKernel");
}

// Device memory of `n` integers, 0 to n-1.
int* numbers(int n);
// Whether they are `first`, `first` + 1, ... there.
bool are_numbers(const int* device, int n, int first);

// runtime_work.cc
void streams_and_events();
void callbacks();
void graph_captured();
void graph_explicit();
void graph_updated();
void pools();
void managed();
void mapped();
void registered();
void between_processes();
// The other process of between_processes(): adds one to what the handle on stdin names.
int ipc_child();
