/*
 * Shared segments: named memory of a virtual GPU that programs of several processes, VMs and virtual GPUs of one
 * physical GPU use at once, without a copy. An extension of the CUDA driver API that Bandsaw's libcuda.so.1 has (after
 * Gdev's cuShm*); NVIDIA's has not. Link with -lcuda where that is Bandsaw's library, or look the functions up:
 * cuGetProcAddress("cuShmAt", ...) finds none of them elsewhere.
 *
 * Who makes a segment. `vgpuctl segment create NAME --vgpu OWNER --size SIZE` makes one that lasts until it is
 * destroyed; `vgpuctl segment grant` says which other virtual GPUs may read it, or read and write it. Programs make
 * segments of their own virtual GPU (CU_SHM_CREATE), which no other virtual GPU sees and which end with the last
 * process that has found or attached them.
 *
 * Memory. Sizes are bytes, rounded up to multiples of 2 MiB; what is in a new segment is undefined. It counts against
 * the memory share of the virtual GPU that owns it, once, however many use it. Each process has it at an address of its
 * own; pointers stored in it mean nothing to others.
 *
 * Order. A segment has no locks. What one process's kernels and copies have written is there for another's after the
 * writer has synchronised with them and told the other, by whatever both have.
 *
 * Ends. A segment goes when its name is gone and nobody has it attached. When rights are revoked, or the owner's
 * virtual GPU ends, the memory is taken out of the processes that use it, whatever runs there: a kernel that touches it
 * fails with CUDA_ERROR_ILLEGAL_ADDRESS, which is sticky like every such fault, a copy or fill with
 * CUDA_ERROR_INVALID_VALUE, and cuShmAt is refused.
 *
 * Threads: every function may be called from any thread. Functions that take no address and no id use the virtual GPU
 * of the current context, and return CUDA_ERROR_INVALID_CONTEXT without one.
 */
#ifndef BANDSAW_SHM_H
#define BANDSAW_SHM_H

#include <cuda.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A name has 1 to 63 of a-z, 0-9 and '-', and begins with a letter or digit. */
#define CU_SHM_NAME_MAX 64 /* bytes, with the NUL */

enum {
  CU_SHM_CREATE = 1,    /* cuShmGet: make it where there is none of that name */
  CU_SHM_EXCLUSIVE = 2, /* cuShmGet, with CU_SHM_CREATE: CUDA_ERROR_ALREADY_MAPPED where there is one */
  CU_SHM_READ_ONLY = 4  /* cuShmAt: for reading alone */
};

typedef enum CUshmAccess_enum { CU_SHM_ACCESS_READ = 1, CU_SHM_ACCESS_READ_WRITE = 2 } CUshmAccess;

typedef struct CUshmInfo_st {
  char name[CU_SHM_NAME_MAX];
  size_t bytes;
  CUshmAccess access; /* what this virtual GPU may do with it now */
} CUshmInfo;

typedef enum CUshmCommand_enum {
  CU_SHM_STAT = 1,  /* fills in *info */
  CU_SHM_REMOVE = 2 /* takes the name away; info is NULL. Only of segments that programs have made */
} CUshmCommand;

/*
 * Finds a segment, or makes it; `*id` stands for it in this process. `bytes`: how many it must have at least, 0: any.
 * cuShmGet has numbers for names, as shmget has: key 7 is the segment "shm-7".
 *   CUDA_ERROR_NOT_FOUND       there is none of that name, or this virtual GPU has no rights to it
 *   CUDA_ERROR_INVALID_VALUE   it is smaller than `bytes`; no such name, key or flag
 *   CUDA_ERROR_ALREADY_MAPPED  CU_SHM_EXCLUSIVE, and there is one
 *   CUDA_ERROR_OUT_OF_MEMORY   making it would pass the memory share, or the number of segments of a virtual GPU (64)
 */
CUresult CUDAAPI cuShmGet(int* id, int key, size_t bytes, unsigned int flags);
CUresult CUDAAPI cuShmGetNamed(int* id, const char* name, size_t bytes, unsigned int flags);

/*
 * Maps all of it. Each call gives another address; each is given back by cuShmDt, and all at the process's end.
 * Kernels, copies and fills use it like memory of cuMemAlloc. Where it is read-only, what would write to it is a fault.
 *   CUDA_ERROR_INVALID_VALUE       no such id or flag
 *   CUDA_ERROR_NOT_FOUND           it is gone, or all rights to it are
 *   CUDA_ERROR_NOT_PERMITTED       this virtual GPU may read it and has not asked for CU_SHM_READ_ONLY
 *   CUDA_ERROR_OUT_OF_MEMORY       the device, or its owner's share, has no room for it
 *   CUDA_ERROR_DEVICE_UNAVAILABLE  the owner's virtual GPU does not run now
 */
CUresult CUDAAPI cuShmAt(CUdeviceptr* address, int id, unsigned int flags);

/*
 * Waits for the work of the current context, then unmaps what cuShmAt has given.
 *   CUDA_ERROR_INVALID_VALUE   cuShmAt has not given this address, or it has been given back
 */
CUresult CUDAAPI cuShmDt(CUdeviceptr address);

/*
 *   CUDA_ERROR_NOT_FOUND       it is gone, or all rights to it are
 *   CUDA_ERROR_NOT_PERMITTED   CU_SHM_REMOVE: `vgpuctl segment destroy` alone removes what an administrator has made
 */
CUresult CUDAAPI cuShmCtl(int id, CUshmCommand command, CUshmInfo* info);

#ifdef __cplusplus
}
#endif

#endif
