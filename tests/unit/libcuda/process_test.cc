// cuInit and the life of a process, in direct mode against a fake session. The library's process object is made once
// and never freed, so each case runs in a child.
#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <functional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/wire_client.h"
#include "tests/unit/libcuda/fake_session.h"

namespace bandsaw::libcuda {
namespace {

using fake::FakeSession;

// Runs in a child process; what it wrote on stderr, and whether it got to the end.
struct Outcome {
  bool passed = false;
  std::string said;
};

Outcome in_child(const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  Outcome outcome;
  char buffer[512];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    outcome.said.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  outcome.passed = waitpid(child, &status, 0) == child && status == 0;
  return outcome;
}

void expect_passes(const std::function<void()>& body, const std::string& says = "") {
  const Outcome outcome = in_child(body);
  EXPECT_TRUE(outcome.passed) << outcome.said;
  EXPECT_TRUE(std::regex_search(outcome.said, std::regex(says))) << outcome.said;
}

// In the child: say what is wrong and end it.
#define MUST(condition)                                                    \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      _exit(1);                                                            \
    }                                                                      \
  } while (0)

void expect_code(CUresult got, CUresult wanted, const char* text, int line) {
  if (got == wanted) return;
  std::fprintf(stderr, "line %d: %s gives %d, not %d\n", line, text, got, wanted);
  _exit(1);
}
#define GIVES(call, code) expect_code(call, code, #call, __LINE__)
#define WORKS(call) GIVES(call, CUDA_SUCCESS)

void whole_life() {
  WORKS(cuInit(0));
  WORKS(cuInit(0));
  char name[64];
  int count = 0;
  size_t bytes = 0;
  WORKS(cuDeviceGetCount(&count));
  MUST(count == 1);
  WORKS(cuDeviceGetName(name, sizeof(name), 0));
  MUST(std::strcmp(name, "Test device") == 0);
  WORKS(cuDeviceGetName(name, 5, 0));
  MUST(std::strcmp(name, "Test") == 0);
  WORKS(cuDeviceTotalMem_v2(&bytes, 0));
  MUST(bytes == 6ull << 30);
  GIVES(cuDeviceTotalMem_v2(&bytes, 1), CUDA_ERROR_INVALID_DEVICE);
}

TEST(Process, InitialisesAndKnowsTheDevice) {
  FakeSession session;
  expect_passes(whole_life);
}

TEST(Process, NamesBothReleasesWhenTheyLieTooFarApart) {
  FakeSession session({.minor = 2});
  expect_passes([] { GIVES(cuInit(0), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH); },
                std::string("of release ") + wire::kRelease + ", the host of [0-9.]+: install");
}

TEST(Process, SaysWhatToDoWhenNobodyIsThere) {
  setenv("BANDSAW_RUN", "/nonexistent", 1);
  setenv("BANDSAW_VGPU", "web0", 1);
  expect_passes([] { GIVES(cuInit(0), CUDA_ERROR_NO_DEVICE); }, "/nonexistent/web0/direct.sock.*is vgpud running");
}

void visible(const char* list, CUresult wanted) {
  setenv("CUDA_VISIBLE_DEVICES", list, 1);
  GIVES(cuInit(0), wanted);
}

TEST(Process, HonoursCudaVisibleDevices) {
  FakeSession session;
  expect_passes([] { visible("0", CUDA_SUCCESS); });
  expect_passes([] { visible("0,1", CUDA_SUCCESS); });
  expect_passes([] { visible("GPU-ab00", CUDA_SUCCESS); });
  expect_passes([] { visible("GPU-ac00", CUDA_ERROR_NO_DEVICE); });
  expect_passes([] { visible("-1", CUDA_ERROR_NO_DEVICE); });
  expect_passes([] { visible("", CUDA_ERROR_NO_DEVICE); });
  expect_passes([] { visible("1,0", CUDA_ERROR_NO_DEVICE); });
}

void contexts() {
  WORKS(cuInit(0));
  CUcontext primary = nullptr, made = nullptr, current = nullptr;
  CUdevice device = -1;
  unsigned long long id = 0, other_id = 0;
  GIVES(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  WORKS(cuCtxGetCurrent(&current));
  MUST(current == nullptr);
  GIVES(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  WORKS(cuDevicePrimaryCtxRetain(&primary, 0));
  WORKS(cuCtxSetCurrent(primary));
  WORKS(cuCtxGetDevice(&device));
  MUST(device == 0);
  WORKS(cuCtxSynchronize());
  WORKS(cuCtxCreate_v2(&made, CU_CTX_SCHED_YIELD, 0));
  WORKS(cuCtxGetCurrent(&current));
  MUST(current == made && made != primary);
  WORKS(cuCtxGetId(made, &id));
  WORKS(cuCtxGetId(primary, &other_id));
  MUST(id != other_id);
  GIVES(cuCtxDestroy_v2(primary), CUDA_ERROR_INVALID_CONTEXT);
  WORKS(cuCtxDestroy_v2(made));
  GIVES(cuCtxGetId(made, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  GIVES(cuCtxPushCurrent_v2(reinterpret_cast<CUcontext>(&id)), CUDA_ERROR_INVALID_CONTEXT);
  WORKS(cuCtxGetCurrent(&current));
  MUST(current == primary);
  std::thread([&] {
    WORKS(cuCtxGetCurrent(&current));
    MUST(current == nullptr);
  }).join();
  WORKS(cuCtxPopCurrent_v2(&current));
  MUST(current == primary);
  GIVES(cuCtxPopCurrent_v2(&current), CUDA_ERROR_INVALID_CONTEXT);
  WORKS(cuDevicePrimaryCtxRelease_v2(0));
  unsigned flags = 0;
  int active = 1;
  WORKS(cuDevicePrimaryCtxGetState(0, &flags, &active));
  MUST(active == 0);
}

TEST(Process, ContextsAndTheirStack) {
  FakeSession session;
  expect_passes(contexts);
}

void child_of_fork() {
  WORKS(cuInit(0));
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    GIVES(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    GIVES(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    GIVES(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    _exit(0);
  }
  int status = 0;
  MUST(waitpid(child, &status, 0) == child && status == 0);
  CUcontext context = nullptr;
  WORKS(cuDevicePrimaryCtxRetain(&context, 0));
}

TEST(Process, WorksWithAHostThatNumbersItsCallsInAnotherWay) {
  FakeSession session({.minor = 1, .other_opcodes = true});
  expect_passes([] {
    whole_life();
    contexts();
  });
}

TEST(Process, SaysWhichCallAnOlderHostLacks) {
  FakeSession session({.minor = 1, .other_opcodes = true});
  expect_passes(
      [] {
        CUcontext made = nullptr;
        size_t bytes = 0;
        WORKS(cuInit(0));
        WORKS(cuCtxCreate_v2(&made, 0, 0));
        GIVES(cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE), CUDA_ERROR_NOT_SUPPORTED);
        WORKS(cuCtxSynchronize());
      },
      "has no call \"context_get_limit\": update it");
}

TEST(Process, AForkedChildIsNotInitialised) {
  FakeSession session;
  expect_passes(child_of_fork);
}

void lost_host() {
  WORKS(cuInit(0));
  CUcontext context = nullptr;
  WORKS(cuDevicePrimaryCtxRetain(&context, 0));
  WORKS(cuCtxSetCurrent(context));
  GIVES(cuCtxSynchronize(), kLostHost);
  GIVES(cuCtxSynchronize(), kLostHost);
  GIVES(cuDevicePrimaryCtxRetain(&context, 0), kLostHost);
  int count = 0;
  WORKS(cuDeviceGetCount(&count));
}

TEST(Process, ALostHostEndsEveryCall) {
  FakeSession session;
  session.die_at_synchronize = true;
  expect_passes(lost_host, "host side is gone");
}

void many_threads() {
  WORKS(cuInit(0));
  CUcontext context = nullptr;
  WORKS(cuDevicePrimaryCtxRetain(&context, 0));
  for (int round = 0; round < 3; round++) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
      threads.emplace_back([context] {
        WORKS(cuCtxSetCurrent(context));
        for (int n = 0; n < 2000; n++) {
          Call call;
          WORKS(wire::memory_free_async(call, 1, 0));
        }
        WORKS(cuCtxSynchronize());
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST(Process, RingsGoRoundAmongThreads) {
  FakeSession session;
  expect_passes(many_threads);
}

}  // namespace
}  // namespace bandsaw::libcuda
