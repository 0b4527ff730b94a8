/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 */
/* What libcuda.so.1 asks of /dev/vgpu0. One open file is one guest process on the host. */
#ifndef VGPU_IOCTL_H
#define VGPU_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include "vgpu_control.h"

struct vgpu_ioc_hello {
	struct vgpu_schema schema;      /* in: the library's */
	struct vgpu_schema host_schema; /* out, also when it fails with EPROTO */
	__u64 window_base;              /* out */
};

/* Makes a command ring; map it with mmap(offset = id * VGPU_RING_BYTES, length VGPU_RING_BYTES). */
struct vgpu_ioc_ring {
	__u32 id; /* out */
	__u32 reserved;
};

/* Pins [va, va + bytes) for as long as the region lives and hands its pages to the host. Page aligned. */
struct vgpu_ioc_region {
	__u64 va;
	__u64 bytes;
	__u32 flags; /* VGPU_REGION_* */
	__u32 id;    /* out of PIN, in of UNPIN */
};

/*
 * Pins as VGPU_IOC_PIN does, and watches the addresses: while they mean the pinned pages, and may be used as when they
 * were pinned, the word `slot` of the watch page is the region's id. When the process unmaps, moves, protects, discards
 * or forks over any part of them, and when the kernel replaces a page, it becomes something else before the call that
 * did it returns. The pages stay pinned until UNPIN; when all addresses were unmapped at once, the kernel unpins them soon
 * after, and UNPIN may say ENOENT.
 *
 * VGPU_REGION_READ_ONLY says here that reading is enough: memory that can be pinned for writing at no cost (anonymous,
 * writable) is. `flags` returns how it was pinned.
 */
struct vgpu_ioc_watched {
	struct vgpu_ioc_region region;
	__u32 slot;     /* out */
	__u32 reserved;
};

/* The watch page: mmap(offset = VGPU_WATCH_OFFSET, length VGPU_WATCH_BYTES), shared and read-only. */
#define VGPU_WATCH_OFFSET (1ull << 40)
#define VGPU_WATCH_BYTES 4096
#define VGPU_WATCH_SLOTS (VGPU_WATCH_BYTES / 4) /* __u32 words; PIN_WATCHED fails with ENOSPC when all are in use */

/*
 * Waits until the process's event count differs from `seen` or `timeout_ms` passed; returns the new count.
 * Errors: EINTR, ETIMEDOUT, EPIPE when the host side of this process is gone.
 */
struct vgpu_ioc_wait {
	__u64 seen;  /* in and out */
	__u32 timeout_ms;
	__u32 reserved;
};

/* Asks the session what the virtual GPU is and does (vgpu_control.h); needs no HELLO. Errors are the session's. */
struct vgpu_ioc_query {
	__u32 what;
	__u32 index;
	__u8 answer[VGPU_ANSWER_BYTES]; /* out */
};

#define VGPU_IOC_HELLO _IOWR('V', 1, struct vgpu_ioc_hello)
#define VGPU_IOC_ADD_RING _IOWR('V', 2, struct vgpu_ioc_ring)
#define VGPU_IOC_DROP_RING _IOW('V', 3, struct vgpu_ioc_ring)
#define VGPU_IOC_PIN _IOWR('V', 4, struct vgpu_ioc_region)
#define VGPU_IOC_UNPIN _IOW('V', 5, struct vgpu_ioc_region)
#define VGPU_IOC_KICK _IO('V', 6)
#define VGPU_IOC_WAIT _IOWR('V', 7, struct vgpu_ioc_wait)
/* Asks the session whether it lives; fails with EPIPE after a few seconds if not. */
#define VGPU_IOC_PING _IO('V', 8)
#define VGPU_IOC_PIN_WATCHED _IOWR('V', 9, struct vgpu_ioc_watched)
#define VGPU_IOC_QUERY _IOWR('V', 10, struct vgpu_ioc_query)

#endif
