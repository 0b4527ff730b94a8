// nvcc: --compress-mode=speed
// Images compressed with LZ4.
#include "image_kernel.h"

int main() { return run_image_kernel(); }
