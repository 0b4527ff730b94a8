// A forked child must not use its parent's context; the parent goes on.
// vm: yes
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

__global__ void put(int* at) { *at = 11; }

int main(int argc, char**) {
  if (argc > 1) return cudaFree(nullptr) == cudaSuccess ? 0 : 3;
  int* data;
  CHECK(cudaMalloc(&data, 4));
  const pid_t child = fork();
  if (child == 0) {
    int* mine;
    _exit(cudaMalloc(&mine, 4) == cudaErrorInitializationError ? 7 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  put<<<1, 1>>>(data);
  int got = 0;
  CHECK(cudaMemcpy(&got, data, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 11);

  const pid_t fresh = fork();  // a child that starts a new program has CUDA again
  if (fresh == 0) {
    execl("/proc/self/exe", "fork", "leaf", nullptr);
    _exit(2);
  }
  EXPECT_EQ(waitpid(fresh, &status, 0), fresh);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return passed();
}
