// nvcc: -lcuda
// Every code of the driver has a name and a text; unknown ones are refused.
#include <cstring>

#include "check.h"

int main() {
  const char* text = nullptr;
  CHECK_DRIVER(cuGetErrorName(CUDA_SUCCESS, &text));
  EXPECT(std::strcmp(text, "CUDA_SUCCESS") == 0);
  CHECK_DRIVER(cuGetErrorString(CUDA_SUCCESS, &text));
  EXPECT(std::strcmp(text, "no error") == 0);
  CHECK_DRIVER(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT(std::strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
  CHECK_DRIVER(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT(std::strcmp(text, "an illegal memory access was encountered") == 0);
  CHECK_DRIVER(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT(std::strcmp(text, "out of memory") == 0);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(static_cast<CUresult>(123456), &text));
  EXPECT(text == nullptr);
  int known = 0;
  for (int code = 0; code < 1000; ++code) known += cuGetErrorName(static_cast<CUresult>(code), &text) == CUDA_SUCCESS;
  EXPECT(known > 80);
  return passed();
}
