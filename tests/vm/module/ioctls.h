#ifndef TESTS_VM_MODULE_IOCTLS_H
#define TESTS_VM_MODULE_IOCTLS_H

#include <stdint.h>

void fuzz_ioctls(double seconds, uint64_t seed);

#endif
