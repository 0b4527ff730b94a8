// nvcc: -gencode arch=compute_90,code=[compute_90,sm_90]
// PTX for the device's own architecture.
#include "image_kernel.h"

int main() { return run_image_kernel(); }
