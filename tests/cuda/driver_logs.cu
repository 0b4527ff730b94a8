// nvcc: -lcuda
// The driver's log of errors: callbacks, iterators, dumps. What it says is the driver's own affair.
#include <cstring>
#include <string>

#include "check.h"

void CUDA_CB remember(void* data, CUlogLevel, char* message, size_t length) {
  *static_cast<std::string*>(data) += std::string(message, length);
}

int main() {
  CHECK(cudaFree(nullptr));
  std::string said;
  CUlogsCallbackHandle handle = nullptr;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuLogsRegisterCallback(nullptr, nullptr, &handle));
  CHECK_DRIVER(cuLogsRegisterCallback(remember, &said, &handle));
  CUlogIterator iterator = 0;
  CHECK_DRIVER(cuLogsCurrent(&iterator, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuLogsCurrent(nullptr, 0));

  CUmodule module;
  EXPECT(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n.address_size 64\n nonsense") != CUDA_SUCCESS);

  static char text[25600];
  size_t size = sizeof(text);
  CUlogIterator all = 0;
  CHECK_DRIVER(cuLogsDumpToMemory(&all, text, &size, 0));
  EXPECT(size < sizeof(text) && std::strlen(text) == size);
  size = sizeof(text);
  CHECK_DRIVER(cuLogsDumpToMemory(&iterator, text, &size, 0));
  EXPECT_EQ(std::strlen(text), size);
  if (!said.empty()) EXPECT(size > 0);
  // The iterator has moved: nothing is there twice.
  size = sizeof(text);
  CHECK_DRIVER(cuLogsDumpToMemory(&iterator, text, &size, 0));
  EXPECT_EQ(size, 0u);
  CHECK_DRIVER(cuLogsUnregisterCallback(handle));
  std::printf("%s", said.c_str());
  return passed();
}
