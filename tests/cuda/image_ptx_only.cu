// nvcc: -gencode arch=compute_75,code=compute_75
// Only PTX in the image.
#include "image_kernel.h"

int main() { return run_image_kernel(); }
