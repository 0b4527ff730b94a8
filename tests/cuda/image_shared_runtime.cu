// nvcc: -cudart shared
// The runtime as a shared library.
#include "image_kernel.h"

int main() { return run_image_kernel(); }
