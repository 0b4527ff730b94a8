// SPDX-License-Identifier: GPL-2.0-only
/* Batches on the virtual GPU: copy in, two kernels, copy out, all in the order of a stream. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "client.h"
#include "crypto.h"

#define OPEN_TIMEOUT (60 * HZ) /* of each call; kernels may have to be compiled */
#define STREAM_NON_BLOCKING 1  /* CU_STREAM_NON_BLOCKING */

struct slot {
	struct vgpu_client_memory staging;
	u64 memory; /* on the device */
	u64 stream;
	u64 stamp;
	struct vgpu_done done;
};

struct xts_gpu {
	struct vgpu_client *client;
	struct slot slots[XTS_SLOTS];
	u64 tweaks, crypt; /* the kernels */
	u64 stamps;
};

/* A call with arguments only. */
#define ASK(gpu, name, args, reply)                                                                                    \
	vgpu_client_ask((gpu)->client,                                                                                 \
			&(struct vgpu_client_call){                                                                    \
				.call = (name), .arguments = (args), .arguments_bytes = sizeof(*(args)) },             \
			(reply), sizeof(*(reply)), OPEN_TIMEOUT)

static int open_context(struct xts_gpu *gpu)
{
	const struct vgpu_call_context_create args = { 0 };
	struct vgpu_reply_context_create reply;
	const int error = ASK(gpu, VGPU_CALL_CONTEXT_CREATE, &args, &reply);

	if (!error)
		vgpu_client_set_context(gpu->client, reply.context);
	return error;
}

static int find_kernel(struct xts_gpu *gpu, u64 library, const char *name, u64 *kernel)
{
	const struct vgpu_call_library_kernel args = { .library = library, .name_bytes = strlen(name) };
	const struct vgpu_client_call call = {
		.call = VGPU_CALL_LIBRARY_KERNEL,
		.arguments = &args,
		.arguments_bytes = sizeof(args),
		.data = name,
		.data_bytes = strlen(name),
	};
	struct vgpu_reply_library_kernel reply;
	const int error = vgpu_client_ask(gpu->client, &call, &reply, sizeof(reply), OPEN_TIMEOUT);

	if (!error)
		*kernel = reply.kernel;
	return error;
}

/* The code reaches the host by way of staging memory, with a NUL behind it: it is text. */
static int load_kernels(struct xts_gpu *gpu, const struct firmware *code)
{
	struct vgpu_client_memory *staging = &gpu->slots[0].staging;
	const struct vgpu_call_library_load args = { .image = staging->va, .size = code->size + 1 };
	struct vgpu_reply_library_load reply;
	int error;

	if (code->size >= staging->bytes)
		return -EFBIG;
	memcpy(staging->address, code->data, code->size);
	error = ASK(gpu, VGPU_CALL_LIBRARY_LOAD, &args, &reply);
	if (!error)
		error = find_kernel(gpu, reply.library, "vgpu_xts_tweaks", &gpu->tweaks);
	if (!error)
		error = find_kernel(gpu, reply.library, "vgpu_xts_crypt", &gpu->crypt);
	return error;
}

static int open_slot(struct xts_gpu *gpu, struct slot *slot)
{
	const struct vgpu_call_stream_create stream = { .flags = STREAM_NON_BLOCKING };
	const struct vgpu_call_memory_alloc memory = { .size = VGPU_XTS_DEVICE_BYTES };
	struct vgpu_reply_stream_create made;
	struct vgpu_reply_memory_alloc got;
	int error = ASK(gpu, VGPU_CALL_STREAM_CREATE, &stream, &made);

	if (error)
		return error;
	slot->stream = made.stream;
	error = ASK(gpu, VGPU_CALL_MEMORY_ALLOC, &memory, &got);
	if (!error)
		slot->memory = got.address;
	return error;
}

/*
 * Once before it counts: kernels may be compiled at their first launch, and code that is not what it should be must not
 * get at anybody's data. All zeros, by IEEE 1619's first vector.
 */
static int try_out(struct xts_gpu *gpu)
{
	static const u8 zeros[AES_KEYSIZE_128];
	static const u8 expected[] = { 0x91, 0x7c, 0xf6, 0x9e, 0xbd, 0x68, 0xb2, 0xec, 0x9b, 0x9f, 0xe9,
				       0xa3, 0xea, 0xdd, 0xa6, 0x92, 0xcd, 0x43, 0xd2, 0xf5, 0x95, 0x98,
				       0xed, 0x85, 0x8c, 0x02, 0xc2, 0x65, 0x2f, 0xbf, 0x92, 0x2e };
	const struct vgpu_xts_request request = { .bytes = sizeof(expected) };
	struct vgpu_xts_batch *batch = xts_gpu_batch(gpu, 0);
	struct crypto_aes_ctx key;
	int error = aes_expandkey(&key, zeros, sizeof(zeros));

	if (error)
		return error;
	memset(batch, 0, VGPU_XTS_DATA_OFFSET + VGPU_XTS_ROW_BYTES);
	memcpy(batch->keys[0].data, key.key_enc, sizeof(batch->keys[0].data));
	memcpy(batch->keys[0].tweak, key.key_enc, sizeof(batch->keys[0].tweak));
	batch->keys[0].rounds = 10;
	error = xts_gpu_start(gpu, 0, &request, 1, 1, OPEN_TIMEOUT);
	if (!error)
		error = xts_gpu_wait(gpu, 0, OPEN_TIMEOUT);
	if (!error && memcmp(xts_gpu_data(gpu, 0), expected, sizeof(expected)))
		error = -EBADMSG;
	return error;
}

static int open_all(struct xts_gpu *gpu, const struct firmware *code)
{
	unsigned int i;
	int error = 0;

	for (i = 0; i < XTS_SLOTS && !error; i++) {
		gpu->slots[i].staging.bytes = VGPU_XTS_STAGED_BYTES;
		error = vgpu_client_share(gpu->client, &gpu->slots[i].staging);
	}
	if (!error)
		error = open_context(gpu);
	if (!error)
		error = load_kernels(gpu, code);
	for (i = 0; i < XTS_SLOTS && !error; i++)
		error = open_slot(gpu, &gpu->slots[i]);
	return error ?: try_out(gpu);
}

struct xts_gpu *xts_gpu_open(const struct firmware *code)
{
	struct xts_gpu *gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
	int error;

	if (!gpu)
		return ERR_PTR(-ENOMEM);
	gpu->client = vgpu_client_open();
	if (IS_ERR(gpu->client)) {
		error = PTR_ERR(gpu->client);
		kfree(gpu);
		return ERR_PTR(error);
	}
	error = open_all(gpu, code);
	if (error == -EREMOTEIO)
		pr_warn("the virtual GPU refuses: CUDA error %u\n", vgpu_client_result(gpu->client));
	if (error) {
		xts_gpu_close(gpu);
		return ERR_PTR(error);
	}
	return gpu;
}

void xts_gpu_close(struct xts_gpu *gpu)
{
	unsigned int i;

	/* Keys and data have been there. */
	for (i = 0; i < XTS_SLOTS; i++) {
		if (gpu->slots[i].staging.address)
			memzero_explicit(gpu->slots[i].staging.address, VGPU_XTS_STAGED_BYTES);
	}
	vgpu_client_close(gpu->client);
	kfree(gpu);
}

struct vgpu_xts_batch *xts_gpu_batch(struct xts_gpu *gpu, unsigned int slot)
{
	return gpu->slots[slot].staging.address;
}

void *xts_gpu_data(struct xts_gpu *gpu, unsigned int slot)
{
	return gpu->slots[slot].staging.address + VGPU_XTS_DATA_OFFSET;
}

/* `in`: from staging memory to the device; else the other way. */
static int post_copy(struct xts_gpu *gpu, struct slot *slot, bool in, u32 offset, u32 bytes, struct vgpu_done done,
		     long timeout)
{
	const struct vgpu_copy_end host = { .address = slot->staging.va + offset, .kind = VGPU_MEMORY_HOST };
	const struct vgpu_copy_end device = { .address = slot->memory + offset, .kind = VGPU_MEMORY_DEVICE };
	const struct vgpu_call_copy args = {
		.copy = {
			.destination = in ? device : host,
			.source = in ? host : device,
			.width_bytes = bytes,
			.height = 1,
			.depth = 1,
		},
		.stream = slot->stream,
		.done = done,
	};
	const struct vgpu_client_call call = {
		.call = VGPU_CALL_COPY,
		.arguments = &args,
		.arguments_bytes = sizeof(args),
	};

	return vgpu_client_post(gpu->client, &call, timeout);
}

static int post_launch(struct xts_gpu *gpu, struct slot *slot, u64 kernel, u32 threads, long timeout)
{
	const struct vgpu_call_launch args = {
		.launch = {
			.function = kernel,
			.stream = slot->stream,
			.grid = { DIV_ROUND_UP(threads, VGPU_XTS_THREADS), 1, 1 },
			.block = { VGPU_XTS_THREADS, 1, 1 },
		},
		.parameters_bytes = sizeof(slot->memory),
	};
	const struct vgpu_client_call call = {
		.call = VGPU_CALL_LAUNCH,
		.arguments = &args,
		.arguments_bytes = sizeof(args),
		.data = &slot->memory,
		.data_bytes = sizeof(slot->memory),
	};

	return vgpu_client_post(gpu->client, &call, timeout);
}

static u64 *stamp_of(struct slot *slot)
{
	return slot->staging.address + VGPU_XTS_STAMP_OFFSET;
}

int xts_gpu_start(struct xts_gpu *gpu, unsigned int index, const struct vgpu_xts_request *requests, u32 count, u32 rows,
		  long timeout)
{
	struct slot *slot = &gpu->slots[index];
	struct vgpu_xts_batch *batch = slot->staging.address;
	const u32 bytes = rows * VGPU_XTS_ROW_BYTES;
	const struct vgpu_done none = { 0 };
	int error;

	slot->stamp = ++gpu->stamps;
	batch->stamp = slot->stamp;
	batch->seen = 0;
	batch->requests = count;
	batch->rows = rows;
	*stamp_of(slot) = 0;
	memcpy(slot->staging.address + VGPU_XTS_REQUESTS_OFFSET(rows), requests, count * sizeof(*requests));
	error = post_copy(gpu, slot, true, 0, VGPU_XTS_REQUESTS_OFFSET(rows) + count * sizeof(*requests), none,
			  timeout);
	if (!error)
		error = post_launch(gpu, slot, gpu->tweaks, count, timeout);
	if (!error)
		error = post_launch(gpu, slot, gpu->crypt, bytes / AES_BLOCK_SIZE, timeout);
	if (error)
		return error;
	slot->done = vgpu_client_next_done(gpu->client, index);
	return post_copy(gpu, slot, false, VGPU_XTS_STAMP_OFFSET, VGPU_XTS_DATA_OFFSET - VGPU_XTS_STAMP_OFFSET + bytes,
			 slot->done, timeout);
}

/*
 * The done word tells of the copy out alone. That the copy in and both kernels were carried out before it, the stamp
 * tells: each hands it on.
 */
int xts_gpu_wait(struct xts_gpu *gpu, unsigned int index, long timeout)
{
	struct slot *slot = &gpu->slots[index];
	const int error = vgpu_client_wait_done(gpu->client, slot->done, timeout);

	if (error == -EREMOTEIO)
		pr_warn("the virtual GPU gives up: CUDA error %u\n", vgpu_client_result(gpu->client));
	if (error)
		return error;
	return READ_ONCE(*stamp_of(slot)) == slot->stamp ? 0 : -EIO;
}
