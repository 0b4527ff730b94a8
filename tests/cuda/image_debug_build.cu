// nvcc: -G
// A debug build: unoptimised code and line information.
#include "image_kernel.h"

int main() { return run_image_kernel(); }
