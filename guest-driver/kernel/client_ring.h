/* SPDX-License-Identifier: GPL-2.0-only */
/* What client.c and client_ring.c share. */
#ifndef VGPU_CLIENT_RING_H
#define VGPU_CLIENT_RING_H

#include "client.h"
#include "vgpu.h"

struct vgpu_client {
	struct vgpu_process *process;
	struct vgpu_ring_header *ring; /* mapped */
	u64 tail;        /* published */
	u64 sequence;                  /* of the last record */
	u64 context;
	u32 tokens[VGPU_RING_DONE_SLOTS];
	u32 result;
	u32 opcodes[VGPU_CALLS];       /* the host's; 0: it lacks the call */
	u64 next_va;
	struct list_head mappings;     /* of shared memory */
};

/* Publishes a record; its sequence number goes to client->sequence. */
int vgpu_client_publish(struct vgpu_client *client, const struct vgpu_client_call *call, long timeout);
/* Until the reply to the last record is there. */
int vgpu_client_wait_reply(struct vgpu_client *client, long timeout);
/* 0, or -EREMOTEIO and the CUresult is kept. */
int vgpu_client_outcome(struct vgpu_client *client, u32 result);
/* The reply's body, `bytes` of it; NULL: it is not there. */
const void *vgpu_client_reply(struct vgpu_client *client, u32 bytes);

#endif
