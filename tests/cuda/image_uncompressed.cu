// nvcc: --compress-mode=none
// Images as they are.
#include "image_kernel.h"

int main() { return run_image_kernel(); }
