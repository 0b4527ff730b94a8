// SPDX-License-Identifier: GPL-2.0-only
/* Regions: user memory, or pages of the kernel's own, that stay where they are while the host copies from and to them. */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "vgpu.h"

#define PIN_BATCH 4096ul

/*
 * As bare-metal GPU drivers do, pinning is not charged to RLIMIT_MEMLOCK, whose default no CUDA program could
 * live with; it is limited per device and shown as VmPin.
 */
static unsigned int pinned_percent = 75;
module_param(pinned_percent, uint, 0644);
MODULE_PARM_DESC(pinned_percent, "share of the machine's memory that may be pinned, in percent");

static int charge(struct vgpu_process *process, unsigned long count)
{
	const unsigned long limit = totalram_pages() / 100 * min(pinned_percent, 100u);

	if (atomic_long_add_return(count, &process->device->pinned_pages) > limit) {
		atomic_long_sub(count, &process->device->pinned_pages);
		return -ENOMEM;
	}
	if (process->mm)
		atomic64_add(count, &process->mm->pinned_vm);
	return 0;
}

static void discharge(struct vgpu_process *process, unsigned long count)
{
	if (process->mm)
		atomic64_sub(count, &process->mm->pinned_vm);
	atomic_long_sub(count, &process->device->pinned_pages);
}

void vgpu_region_free(struct vgpu_process *process, struct vgpu_region *region)
{
	unsigned long at;

	vgpu_watch_end(region->watch);
	vgpu_unshare(process->device, region->shared);
	for (at = 0; at < region->owned; at++)
		__free_page(region->pages[at]);
	for (at = 0; at < region->pinned; at += PIN_BATCH) {
		unpin_user_pages_dirty_lock(region->pages + at, min(PIN_BATCH, region->pinned - at), region->writable);
		cond_resched();
	}
	discharge(process, region->count);
	kvfree(region->pages);
	kfree(region);
}

static struct vgpu_region *region_new(struct vgpu_process *process, const struct vgpu_ioc_region *ioc, bool writable)
{
	const unsigned long count = ioc->bytes >> PAGE_SHIFT;
	struct vgpu_region *region;
	int error = charge(process, count);

	if (error)
		return ERR_PTR(error);
	region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);
	if (region) {
		region->count = count;
		region->writable = writable;
		region->va = ioc->va;
		region->flags = ioc->flags;
		region->pages = kvmalloc_array(count, sizeof(*region->pages), GFP_KERNEL_ACCOUNT);
		if (region->pages)
			return region;
		kfree(region);
	}
	discharge(process, count);
	return ERR_PTR(-ENOMEM);
}

static int pin_pages(struct vgpu_region *region, u64 va)
{
	const unsigned int flags = FOLL_LONGTERM | (region->writable ? FOLL_WRITE : 0);

	while (region->pinned < region->count) {
		int got = -EINTR;

		if (!fatal_signal_pending(current))
			got = pin_user_pages_fast(va + (region->pinned << PAGE_SHIFT),
						  min(PIN_BATCH, region->count - region->pinned), flags,
						  region->pages + region->pinned);
		if (got <= 0)
			return got ?: -EFAULT;
		region->pinned += got;
		cond_resched();
	}
	return 0;
}

/* Memory of this process alone, which it may write: pinned for writing, it gets no page that it would not have. */
static bool is_anonymous_writable(u64 va, u64 end)
{
	struct vm_area_struct *vma;
	bool is = true;

	mmap_read_lock(current->mm);
	while (is && va < end) {
		vma = find_vma(current->mm, va);
		is = vma && vma->vm_start <= va && vma_is_anonymous(vma) && (vma->vm_flags & VM_WRITE);
		if (is)
			va = vma->vm_end;
	}
	mmap_read_unlock(current->mm);
	return is;
}

int vgpu_region_announce(struct vgpu_process *process, struct vgpu_region *region, u32 id, bool *maybe_done)
{
	struct vgpu_request *request;
	int error;

	*maybe_done = false;
	request = vgpu_request_new(VGPU_CTL_ADD_REGION, process->id, sizeof(request->body.add));
	if (!request)
		return -ENOMEM;
	request->body.add.id = cpu_to_le32(id);
	request->body.add.flags = cpu_to_le32(region->flags);
	request->body.add.va = cpu_to_le64(region->va);
	error = vgpu_share(process->device, request, region->pages, region->count, !region->writable, &region->shared);
	if (!error)
		error = vgpu_request_send(process->device, request, maybe_done);
	vgpu_request_put(request);
	return error;
}

static bool is_sound(const struct vgpu_ioc_region *ioc)
{
	return ioc->bytes && PAGE_ALIGNED(ioc->va) && PAGE_ALIGNED(ioc->bytes) && ioc->va + ioc->bytes > ioc->va &&
	       ioc->va + ioc->bytes <= TASK_SIZE_MAX &&
	       !(ioc->flags & ~(VGPU_REGION_DEVICE_VISIBLE | VGPU_REGION_READ_ONLY));
}

/* Fills a new region; the caller frees it when that fails, unless the host may know it. */
static int region_make(struct vgpu_process *process, struct vgpu_region *region, u32 id,
		       const struct vgpu_ioc_region *ioc, bool watched, bool *maybe_done)
{
	struct vgpu_watch *watch;
	int error;

	*maybe_done = false;
	if (watched) {
		watch = vgpu_watch_start(process, ioc->va, ioc->bytes, id);
		if (IS_ERR(watch))
			return PTR_ERR(watch);
		region->watch = watch;
	}
	error = pin_pages(region, ioc->va);
	if (watched)
		vgpu_watch_pinned(region->watch);
	return error ?: vgpu_region_announce(process, region, id, maybe_done);
}

/* Its pages become the kernel's own, zeroed. */
static int own_pages(struct vgpu_region *region)
{
	while (region->owned < region->count) {
		struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);

		if (!page)
			return -ENOMEM;
		region->pages[region->owned++] = page;
	}
	return 0;
}

int vgpu_region_make(struct vgpu_process *process, struct vgpu_ioc_region *ioc, struct page ***pages)
{
	struct vgpu_region *region;
	bool maybe_done = false;
	u32 id;
	int error = vgpu_process_usable(process);

	if (error)
		return error;
	region = region_new(process, ioc, true);
	if (IS_ERR(region))
		return PTR_ERR(region);
	error = xa_alloc_cyclic(&process->regions, &id, NULL, XA_LIMIT(1, INT_MAX), &process->next_region, GFP_KERNEL);
	if (error < 0) {
		vgpu_region_free(process, region);
		return error;
	}
	error = own_pages(region);
	if (!error)
		error = vgpu_region_announce(process, region, id, &maybe_done);
	if (maybe_done) {
		xa_store(&process->regions, id, region, GFP_KERNEL);
	} else {
		xa_erase(&process->regions, id);
		vgpu_region_free(process, region);
	}
	ioc->id = id;
	if (!error)
		*pages = region->pages;
	return error;
}

int vgpu_region_pin(struct vgpu_process *process, struct vgpu_ioc_region *ioc, u32 *slot)
{
	struct vgpu_region *region;
	bool maybe_done;
	u32 id;
	int error = vgpu_process_usable(process);

	if (error)
		return error;
	if (!is_sound(ioc))
		return -EINVAL;
	if (slot && (ioc->flags & VGPU_REGION_READ_ONLY) && is_anonymous_writable(ioc->va, ioc->va + ioc->bytes))
		ioc->flags &= ~VGPU_REGION_READ_ONLY;
	region = region_new(process, ioc, !(ioc->flags & VGPU_REGION_READ_ONLY));
	if (IS_ERR(region))
		return PTR_ERR(region);
	/* The id is taken, but names no region before the host has agreed. */
	error = xa_alloc_cyclic(&process->regions, &id, NULL, XA_LIMIT(1, INT_MAX), &process->next_region,
				GFP_KERNEL_ACCOUNT);
	if (error < 0) {
		vgpu_region_free(process, region);
		return error;
	}
	error = region_make(process, region, id, ioc, slot, &maybe_done);
	ioc->id = id;
	if (slot && !error)
		*slot = vgpu_watch_slot(region->watch);
	if (maybe_done && !vgpu_process_left(process)) {
		xa_store(&process->regions, id, region, GFP_KERNEL_ACCOUNT);
	} else {
		xa_erase(&process->regions, id);
		vgpu_region_free(process, region);
	}
	return error;
}

int vgpu_region_unpin(struct vgpu_process *process, u32 id, long limit)
{
	struct vgpu_request *request;
	struct vgpu_region *region;
	int error = vgpu_process_usable(process);

	if (error)
		return error;
	request = vgpu_request_new(VGPU_CTL_DROP_REGION, process->id, sizeof(request->body.drop));
	if (!request)
		return -ENOMEM;
	request->body.drop.id = cpu_to_le32(id);
	xa_lock(&process->regions);
	region = xa_load(&process->regions, id);
	/* The slot exists, so this allocates nothing. */
	if (region)
		__xa_store(&process->regions, id, XA_ZERO_ENTRY, 0);
	xa_unlock(&process->regions);
	if (!region) {
		vgpu_request_put(request);
		return -ENOENT;
	}
	vgpu_watch_end(region->watch);
	region->watch = NULL;
	error = vgpu_request_submit(process->device, request, true);
	if (!error)
		error = vgpu_request_wait(process->device, request, true, limit);
	vgpu_request_put(request);
	if (error) {
		/* The host may still use it: it goes when the process does. */
		xa_store(&process->regions, id, region, GFP_KERNEL_ACCOUNT);
		return error;
	}
	xa_erase(&process->regions, id);
	vgpu_region_free(process, region);
	return 0;
}
