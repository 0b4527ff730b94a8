/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vgpu_crypto: xts(aes) on a virtual GPU, what its files share.
 *
 *   crypto_xts.c    the algorithm as Linux's crypto API sees it; what the processor does
 *   crypto_queue.c  requests become batches; what happens when the virtual GPU goes
 *   crypto_gpu.c    a batch on the virtual GPU, by way of client.h
 *   crypto_batch.h  a batch's layout, which aes_xts.cu shares
 *
 * Memory may wait for these requests to become free, so nothing on their way allocates memory that has to come.
 */
#ifndef VGPU_CRYPTO_H
#define VGPU_CRYPTO_H

#include <crypto/aes.h>
#include <crypto/skcipher.h>
#include <linux/firmware.h>
#include <linux/list.h>

#include "crypto_batch.h"

#define XTS_SLOTS 2 /* batches on the virtual GPU at a time */

/* Of a transform (a key). */
struct xts_tfm {
	struct crypto_aes_ctx data, tweak;
	struct crypto_skcipher *fallback; /* the processor's */
};

/* Of a request, while it is under way. */
struct xts_request {
	struct list_head list;
	struct skcipher_request *request;
	bool decrypt;
	u32 first_row;
	struct skcipher_request fallback; /* its context follows */
};

struct xts_gpu;

/* crypto_xts.c */
/* Does it at once and waits; the caller completes the request. */
int xts_on_cpu(struct xts_request *one);

/* crypto_queue.c */
int xts_queue_start(const struct firmware *code);
/* No request is under way, and none comes. */
void xts_queue_stop(void);
/* False: the virtual GPU is not to be had, and the request is still the caller's. Any context. */
bool xts_queue_add(struct xts_request *one);
bool xts_queue_ready(void);
u64 xts_queue_gpu_bytes(void);

/* crypto_gpu.c; may sleep */
struct xts_gpu *xts_gpu_open(const struct firmware *code);
void xts_gpu_close(struct xts_gpu *gpu);
/* Where a slot's next batch is made, and its data; the host sees both. */
struct vgpu_xts_batch *xts_gpu_batch(struct xts_gpu *gpu, unsigned int slot);
void *xts_gpu_data(struct xts_gpu *gpu, unsigned int slot);
/* Copies it in, runs it and copies its data out, in the background. */
int xts_gpu_start(struct xts_gpu *gpu, unsigned int slot, const struct vgpu_xts_request *requests, u32 count, u32 rows,
		  long timeout);
/* 0: the data are what was asked for. */
int xts_gpu_wait(struct xts_gpu *gpu, unsigned int slot, long timeout);

#endif
