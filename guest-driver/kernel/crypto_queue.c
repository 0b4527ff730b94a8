// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests wait in a queue; a worker puts what waits into a batch, and makes the next one while the virtual GPU has the
 * first. A batch that fails in any way has changed nothing of its requests' memory: the processor does them, and all
 * others, until the virtual GPU is opened anew.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <crypto/internal/skcipher.h>
#include <crypto/scatterwalk.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "crypto.h"

/* Before the next attempt to open the virtual GPU; doubled each time, until one has done some work. */
#define RETRY_FIRST HZ
#define RETRY_LAST (60 * HZ)

static unsigned int timeout_ms = 10000;
module_param(timeout_ms, uint, 0644);
MODULE_PARM_DESC(timeout_ms, "after so long without an answer of the virtual GPU the processor takes over");

/* What the host could change is never read back: its numbers are kept here. */
struct batch {
	struct list_head list;
	struct {
		const struct xts_tfm *tfm;
		bool decrypt;
	} keys[VGPU_XTS_KEYS_MAX];
	struct vgpu_xts_request requests[VGPU_XTS_REQUESTS_MAX];
	u32 key_count, count, rows;
};

static struct {
	spinlock_t lock;
	struct list_head waiting;
	bool ready; /* and `gpu` is the worker's */
	struct xts_gpu *gpu;
	struct xts_gpu *lost; /* to be closed by open_work */
	struct workqueue_struct *queue;
	struct work_struct work;
	struct delayed_work open_work;
	unsigned long retry;
	bool said; /* that it is not to be had */
	const struct firmware *code;
	struct batch batches[XTS_SLOTS];
	atomic64_t gpu_bytes;
} engine;

static long timeout_jiffies(void)
{
	return msecs_to_jiffies(max(READ_ONCE(timeout_ms), 1u));
}

static void finish(struct xts_request *one, int error)
{
	list_del(&one->list);
	local_bh_disable(); /* as callers of the crypto API may expect */
	skcipher_request_complete(one->request, error);
	local_bh_enable();
}

static void finish_on_cpu(struct list_head *requests)
{
	struct xts_request *one, *next;

	list_for_each_entry_safe(one, next, requests, list)
		finish(one, xts_on_cpu(one));
}

static struct xts_request *first_waiting(void)
{
	struct xts_request *one;

	spin_lock_irq(&engine.lock);
	one = list_first_entry_or_null(&engine.waiting, struct xts_request, list);
	spin_unlock_irq(&engine.lock);
	return one;
}

/* The number of the request's key in the batch; VGPU_XTS_KEYS_MAX: there is no room for it. */
static u32 key_of(struct batch *batch, struct vgpu_xts_batch *staged, const struct xts_request *one)
{
	const struct xts_tfm *tfm = crypto_skcipher_ctx(crypto_skcipher_reqtfm(one->request));
	struct vgpu_xts_key *key;
	u32 i;

	for (i = 0; i < batch->key_count; i++) {
		if (batch->keys[i].tfm == tfm && batch->keys[i].decrypt == one->decrypt)
			return i;
	}
	if (i == VGPU_XTS_KEYS_MAX)
		return i;
	key = &staged->keys[i];
	memcpy(key->data, one->decrypt ? tfm->data.key_dec : tfm->data.key_enc, sizeof(key->data));
	memcpy(key->tweak, tfm->tweak.key_enc, sizeof(key->tweak));
	key->rounds = 6 + tfm->data.key_length / 4;
	key->decrypt = one->decrypt;
	batch->keys[i].tfm = tfm;
	batch->keys[i].decrypt = one->decrypt;
	batch->key_count++;
	return i;
}

/* False: it does not fit. */
static bool add_request(struct batch *batch, unsigned int slot, struct xts_request *one)
{
	const struct skcipher_request *request = one->request;
	const u32 rows = DIV_ROUND_UP(request->cryptlen, VGPU_XTS_ROW_BYTES);
	struct vgpu_xts_request *entry;
	u32 key;

	if (batch->count == VGPU_XTS_REQUESTS_MAX || rows > VGPU_XTS_ROWS_MAX - batch->rows)
		return false;
	key = key_of(batch, xts_gpu_batch(engine.gpu, slot), one);
	if (key == VGPU_XTS_KEYS_MAX)
		return false;
	entry = &batch->requests[batch->count++];
	memcpy(entry->iv, request->iv, sizeof(entry->iv));
	entry->first_row = batch->rows;
	entry->bytes = request->cryptlen;
	entry->key = key;
	one->first_row = batch->rows;
	scatterwalk_map_and_copy(xts_gpu_data(engine.gpu, slot) + one->first_row * VGPU_XTS_ROW_BYTES, request->src, 0,
				 request->cryptlen, 0);
	batch->rows += rows;
	return true;
}

/* As many as fit of those that wait; false: none waits. */
static bool make_batch(unsigned int slot)
{
	struct batch *batch = &engine.batches[slot];
	struct xts_request *one;

	batch->count = 0;
	batch->rows = 0;
	batch->key_count = 0;
	while ((one = first_waiting()) && add_request(batch, slot, one)) {
		spin_lock_irq(&engine.lock);
		list_move_tail(&one->list, &batch->list);
		spin_unlock_irq(&engine.lock);
	}
	return batch->count != 0;
}

static void finish_batch(unsigned int slot)
{
	struct xts_request *one, *next;

	list_for_each_entry_safe(one, next, &engine.batches[slot].list, list) {
		scatterwalk_map_and_copy(xts_gpu_data(engine.gpu, slot) + one->first_row * VGPU_XTS_ROW_BYTES,
					 one->request->dst, 0, one->request->cryptlen, 1);
		atomic64_add(one->request->cryptlen, &engine.gpu_bytes);
		finish(one, 0);
	}
	WRITE_ONCE(engine.retry, RETRY_FIRST);
}

/* From now on nothing is added to the queue. */
static void lose(int error)
{
	pr_warn("the virtual GPU does not do its work (%d): the processor does it\n", error);
	spin_lock_irq(&engine.lock);
	engine.ready = false;
	engine.lost = engine.gpu;
	engine.gpu = NULL;
	spin_unlock_irq(&engine.lock);
	mod_delayed_work(system_long_wq, &engine.open_work, 0);
}

static void finish_all_on_cpu(void)
{
	LIST_HEAD(waiting);
	unsigned int slot;

	for (slot = 0; slot < XTS_SLOTS; slot++)
		finish_on_cpu(&engine.batches[slot].list);
	spin_lock_irq(&engine.lock);
	list_splice_init(&engine.waiting, &waiting);
	spin_unlock_irq(&engine.lock);
	finish_on_cpu(&waiting);
}

/* Until nothing waits; an error when the virtual GPU is lost. */
static int pump(void)
{
	unsigned int made = 0, ended = 0;
	int error;

	for (;;) {
		while (made - ended < XTS_SLOTS && make_batch(made % XTS_SLOTS)) {
			const struct batch *batch = &engine.batches[made % XTS_SLOTS];

			error = xts_gpu_start(engine.gpu, made++ % XTS_SLOTS, batch->requests, batch->count,
					      batch->rows, timeout_jiffies());
			if (error)
				return error;
		}
		if (made == ended)
			return 0;
		error = xts_gpu_wait(engine.gpu, ended % XTS_SLOTS, timeout_jiffies());
		if (error)
			return error;
		finish_batch(ended++ % XTS_SLOTS);
	}
}

static void work(struct work_struct *unused)
{
	const unsigned int saved = memalloc_noreclaim_save();
	int error = 0;

	if (engine.gpu)
		error = pump();
	if (error)
		lose(error);
	if (!engine.gpu)
		finish_all_on_cpu();
	memalloc_noreclaim_restore(saved);
}

static void open_later(void)
{
	queue_delayed_work(system_long_wq, &engine.open_work, engine.retry);
	engine.retry = min_t(unsigned long, engine.retry * 2, RETRY_LAST);
}

static void open_work(struct work_struct *unused)
{
	struct xts_gpu *gpu;

	if (engine.lost) {
		xts_gpu_close(engine.lost);
		engine.lost = NULL;
		open_later();
		return;
	}
	gpu = xts_gpu_open(engine.code);
	if (IS_ERR(gpu)) {
		if (!engine.said)
			pr_warn("no virtual GPU is to be had (%ld): the processor does the work until there is one\n",
				PTR_ERR(gpu));
		engine.said = true;
		open_later();
		return;
	}
	engine.said = false;
	pr_info("the virtual GPU does the work\n");
	spin_lock_irq(&engine.lock);
	engine.gpu = gpu;
	engine.ready = true;
	spin_unlock_irq(&engine.lock);
}

bool xts_queue_add(struct xts_request *one)
{
	unsigned long flags;
	bool taken;

	spin_lock_irqsave(&engine.lock, flags);
	taken = engine.ready;
	if (taken)
		list_add_tail(&one->list, &engine.waiting);
	spin_unlock_irqrestore(&engine.lock, flags);
	if (taken)
		queue_work(engine.queue, &engine.work);
	return taken;
}

bool xts_queue_ready(void)
{
	return READ_ONCE(engine.ready);
}

u64 xts_queue_gpu_bytes(void)
{
	return atomic64_read(&engine.gpu_bytes);
}

int xts_queue_start(const struct firmware *code)
{
	unsigned int i;

	engine.queue = alloc_workqueue("vgpu_crypto", WQ_UNBOUND | WQ_MEM_RECLAIM, 1);
	if (!engine.queue)
		return -ENOMEM;
	spin_lock_init(&engine.lock);
	INIT_LIST_HEAD(&engine.waiting);
	for (i = 0; i < XTS_SLOTS; i++)
		INIT_LIST_HEAD(&engine.batches[i].list);
	INIT_WORK(&engine.work, work);
	INIT_DELAYED_WORK(&engine.open_work, open_work);
	engine.code = code;
	engine.retry = RETRY_FIRST;
	/* Now, so that the crypto API's self-tests try the virtual GPU if there is one. */
	queue_delayed_work(system_long_wq, &engine.open_work, 0);
	flush_delayed_work(&engine.open_work);
	return 0;
}

void xts_queue_stop(void)
{
	cancel_delayed_work_sync(&engine.open_work);
	destroy_workqueue(engine.queue);
	if (engine.gpu)
		xts_gpu_close(engine.gpu);
	if (engine.lost)
		xts_gpu_close(engine.lost);
}
