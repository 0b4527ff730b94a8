// nvcc: -lcuda
// What a core dump would be like: kept and given back.
#include <cstring>

#include "check.h"

int main() {
  CHECK(cudaFree(nullptr));
  size_t size = 0;
  CHECK_DRIVER(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, nullptr, &size));
  EXPECT_EQ(size, sizeof(bool));
  bool enabled = true;
  CHECK_DRIVER(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &enabled, &size));
  EXPECT(!enabled);
  char name[1024] = "my.core";
  size = std::strlen(name) + 1;
  CHECK_DRIVER(cuCoredumpSetAttributeGlobal(CU_COREDUMP_FILE, name, &size));
  std::memset(name, 0, sizeof(name));
  size = sizeof(name);
  CHECK_DRIVER(cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, name, &size));
  EXPECT(std::strcmp(name, "my.core") == 0);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuCoredumpGetAttributeGlobal(CU_COREDUMP_MAX, name, &size));
  return passed();
}
