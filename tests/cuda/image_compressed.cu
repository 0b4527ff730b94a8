// nvcc: --compress-mode=size
// Images compressed as far as nvcc does.
#include "image_kernel.h"

int main() { return run_image_kernel(); }
