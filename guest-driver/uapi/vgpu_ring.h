/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 */
/*
 * A command ring: the shared memory through which one guest thread sends records to the runner.
 *
 * Layout, all little endian, offsets in bytes from the ring's start:
 *   0                         struct vgpu_ring_header
 *   VGPU_RING_RECORDS_OFFSET  record area, VGPU_RING_RECORDS_BYTES long
 *   VGPU_RING_REPLY_OFFSET    body of the one reply that can be outstanding
 *
 * `tail` and `head` count bytes and never wrap; a position in the record area is the count modulo the area's
 * size. A record never crosses the area's end: a PAD record fills the rest.
 *
 * Order between rings: every record carries `seq`, drawn from one counter per guest process (first: 1) just before
 * the record is published. The runner executes records in the order of `seq` over all rings, so what one
 * thread published before it signalled another comes first. A gap stalls that guest process only.
 *
 * The host trusts nothing here: it copies each record out once and checks the copy.
 */
#ifndef VGPU_RING_H
#define VGPU_RING_H

#include <linux/types.h>

#define VGPU_RING_MAGIC 0x474e4952u /* "RING" */
#define VGPU_RING_BYTES (256u * 1024u)
#define VGPU_RING_RECORDS_OFFSET 4096u
#define VGPU_RING_RECORDS_BYTES (128u * 1024u)
#define VGPU_RING_REPLY_OFFSET (VGPU_RING_RECORDS_OFFSET + VGPU_RING_RECORDS_BYTES)
#define VGPU_RING_REPLY_BYTES (64u * 1024u)
#define VGPU_RECORD_ALIGN 16u
#define VGPU_RECORD_MAX_BYTES (48u * 1024u) /* 32 KiB of kernel parameters and room for the rest */
#define VGPU_RING_DONE_SLOTS 8u
#define VGPU_RINGS_MAX 1024u /* per guest process */

/* Bits of vgpu_ring_header.reply_flags. */
#define VGPU_REPLY_OUTPUT_PENDING 1u /* kernel printf text waits for fetch_output */

struct vgpu_ring_header {
	/* Written by the guest. */
	__u32 magic;
	__u32 reserved0;
	__u64 tail;          /* bytes published; store-release after the record is written */
	__u32 guest_waiting; /* 1: the guest sleeps or is about to; wake it after a reply or a done word */
	__u32 reserved1[11];

	/* Written by the runner, one cache line. */
	__u64 head;          /* bytes consumed; store-release after the record was copied out */
	__u32 host_sleeping; /* 1: publishing needs a kick */
	__u32 sticky_error;  /* first asynchronous error of the process (a CUresult), 0 while healthy */
	__u32 compiling;     /* kernels that the host compiles, once that has taken a second; 0: none */
	__u32 away;          /* direct mode: 1: all that the process has is in a file; it may outlive its session */
	__u32 reserved2[10];

	/* The reply to the synchronous record `reply_seq`; that word is stored last, with release. */
	__u64 reply_seq;
	__s32 reply_result; /* a CUresult */
	__u32 reply_bytes;  /* length of the body at VGPU_RING_REPLY_OFFSET */
	__u32 reply_flags;
	__u32 wake;         /* incremented at each wake-up; the futex word of direct mode */
	__u32 reserved3[10];

	/*
	 * Completion words of asynchronous records that name a slot: (token << 32) | CUresult. The guest
	 * chooses tokens that grow, so a later completion overwrites an earlier one.
	 */
	__u64 done[VGPU_RING_DONE_SLOTS];
};

/* Every record begins with this; `bytes` covers header, arguments and data, a multiple of the alignment. */
struct vgpu_record {
	__u32 bytes;
	__u32 opcode; /* generated from calls/wire.toml; 0 is PAD */
	__u64 seq;    /* ignored in PAD */
	__u64 context;/* the thread's current context (a handle), 0 for none */
	__u64 reserved;
};

#define VGPU_OPCODE_PAD 0u

#endif
