/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The virtual GPU for other modules: a client is a guest process of the kernel's own, with one command ring. It is
 * used by one thread at a time, which may sleep; only vgpu_client_open, share and close allocate memory that has to
 * come, so that the rest may stand in the way of writing pages back (under memalloc_noreclaim_save).
 *
 * Errors: -ENODEV (no virtual GPU), -EPIPE (the host's side is gone), -ETIMEDOUT, -EOPNOTSUPP (the host lacks the
 * call), -EREMOTEIO (the host refuses, with a CUresult that vgpu_client_result gives), and those of requests. After
 * any of them but -EOPNOTSUPP and -EREMOTEIO, the client can only be closed.
 */
#ifndef VGPU_CLIENT_H
#define VGPU_CLIENT_H

#include <linux/types.h>

#include "vgpu_calls.h"
#include "vgpu_ring.h"

struct vgpu_client;

/* Memory that the host reads and writes too, for as long as the client lives. */
struct vgpu_client_memory {
	void *address;
	u64 va; /* what records call it */
	unsigned long bytes;
};

/* A call on its way into the ring. `data` follows the arguments. */
struct vgpu_client_call {
	enum vgpu_call call;
	const void *arguments;
	u32 arguments_bytes;
	const void *data;
	u32 data_bytes;
};

/* On the first virtual GPU that is usable. */
struct vgpu_client *vgpu_client_open(void);
/* Waits until the host uses none of its memory any more, bounded; then that is freed, or the device keeps it. */
void vgpu_client_close(struct vgpu_client *client);
/* `memory->bytes`, rounded up to pages and zeroed. */
int vgpu_client_share(struct vgpu_client *client, struct vgpu_client_memory *memory);
/* The context that the following records name; none at first. */
void vgpu_client_set_context(struct vgpu_client *client, u64 context);

/* A synchronous call; `reply` gets the reply's fixed part, if it has one. `timeout` in jiffies. */
int vgpu_client_ask(struct vgpu_client *client, const struct vgpu_client_call *call, void *reply, u32 reply_bytes,
		    long timeout);
/* An asynchronous one: it is in the ring. */
int vgpu_client_post(struct vgpu_client *client, const struct vgpu_client_call *call, long timeout);
/* The next completion of a slot; a record names it. */
struct vgpu_done vgpu_client_next_done(struct vgpu_client *client, u32 slot);
/* Until the work of that record has ended. */
int vgpu_client_wait_done(struct vgpu_client *client, struct vgpu_done done, long timeout);
/* Of the last -EREMOTEIO. */
u32 vgpu_client_result(struct vgpu_client *client);

#endif
