// Kernels that do nothing and a little memory, for programs that print what the driver answers of work.
#pragma once

#include "answers.h"

static CUdeviceptr memory;
static CUfunction kernel, other_kernel;

static const char* kPtx =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry nothing() { ret; }\n.visible .entry other() { ret; }\n"
    ".visible .entry takes(.param .u64 to, .param .u32 value) { ret; }\n";

static void make_work() {
  NEED(cuMemAlloc(&memory, 4096));
  CUmodule module;
  NEED(cuModuleLoadData(&module, kPtx));
  NEED(cuModuleGetFunction(&kernel, module, "nothing"));
  NEED(cuModuleGetFunction(&other_kernel, module, "other"));
}
