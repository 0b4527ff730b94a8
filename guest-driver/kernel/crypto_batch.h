/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 */
/*
 * A batch of AES-XTS requests as vgpu_crypto.ko stages it and the kernels of aes_xts.cu read it. In this order:
 *
 *   struct vgpu_xts_batch    at 0: how much there is, and the keys
 *   a stamp                  before the data: says that the kernels have run
 *   the data                 rows of 512 bytes; each request begins with a row of its own
 *   struct vgpu_xts_request  after the last row, one for each request
 *   struct vgpu_xts_row      on the device only: one for each row of data, made by the first kernel
 */
#ifndef VGPU_CRYPTO_BATCH_H
#define VGPU_CRYPTO_BATCH_H

#include <linux/types.h>

#define VGPU_XTS_ROW_BYTES 512u /* 32 blocks of AES: one for each thread of a warp */
#define VGPU_XTS_ROWS_MAX 2048u
#define VGPU_XTS_DATA_BYTES (VGPU_XTS_ROWS_MAX * VGPU_XTS_ROW_BYTES)
#define VGPU_XTS_REQUESTS_MAX 512u
#define VGPU_XTS_KEYS_MAX 8u
#define VGPU_XTS_THREADS 256u /* of a block, in both kernels */

/* Key schedules as lib/crypto's aes_expandkey makes them: key_enc or key_dec, and key_enc of the tweak's key. */
struct vgpu_xts_key {
	__u32 data[60], tweak[60];
	__u32 rounds;
	__u32 decrypt;
	__u32 reserved[2];
};

struct vgpu_xts_request {
	__u8 iv[16];
	__u32 first_row;
	__u32 bytes; /* at least 16 */
	__u32 key;
	__u32 reserved;
};

struct vgpu_xts_batch {
	__u64 stamp; /* another one each time */
	__u64 seen;  /* `stamp`, once the first kernel has run */
	__u32 requests, rows;
	__u64 reserved;
	struct vgpu_xts_key keys[VGPU_XTS_KEYS_MAX];
};

struct vgpu_xts_row {
	__u64 tweak[2];  /* of the row's first block */
	__u32 request;
	__u32 reserved[3];
};

#define VGPU_XTS_DATA_OFFSET 4096u
#define VGPU_XTS_STAMP_OFFSET (VGPU_XTS_DATA_OFFSET - 16u) /* `seen`, once the second kernel has run */
#define VGPU_XTS_REQUESTS_OFFSET(rows) (VGPU_XTS_DATA_OFFSET + (rows) * VGPU_XTS_ROW_BYTES)
#define VGPU_XTS_STAGED_BYTES (VGPU_XTS_REQUESTS_OFFSET(VGPU_XTS_ROWS_MAX) + VGPU_XTS_REQUESTS_MAX * 32u)
#define VGPU_XTS_ROWS_OFFSET VGPU_XTS_STAGED_BYTES
#define VGPU_XTS_DEVICE_BYTES (VGPU_XTS_ROWS_OFFSET + VGPU_XTS_ROWS_MAX * 32u)

#endif
