/* What sink.cc and guest.c agree on beside the contract: KICK visits every page of every region in order. */
#ifndef TESTS_VM_MODULE_PROTOCOL_H
#define TESTS_VM_MODULE_PROTOCOL_H

#include <stdint.h>

/* In reserved0 of ring 0's header. */
enum { kCommandVisit = 0, kCommandLose = 1, kCommandSilence = 2, kCommandDie = 3 };

#define kHostSchemaByte 0x42
#define kSumFactor 1099511628211ull

/* At the reply area of ring 0. */
struct KickResult {
  uint64_t sum; /* sum = sum * kSumFactor + first word of the page; each word is copied to the second */
  uint64_t segments;
  uint32_t processes; /* that live on this device */
  uint32_t ready;     /* how many times a driver has started */
};

#endif
