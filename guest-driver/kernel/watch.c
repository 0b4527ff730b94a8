// SPDX-License-Identifier: GPL-2.0-only
/*
 * Watches: a process keeps memory pinned from one copy to the next, and must know when its addresses no longer mean the
 * pinned pages. Each watch has a word in a page that the process has mapped read-only, so that looking costs nothing.
 *
 * The word changes when a change begins, before the page tables do; whoever starts a watch meanwhile waits until the
 * change is made (mmu_interval_read_begin), so a good word never stands for pages that are just being replaced.
 */
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "compat.h"
#include "vgpu.h"

struct vgpu_watch {
	struct mmu_interval_notifier notifier;
	struct vgpu_process *process; /* which ends its watches before it goes */
	struct task_struct *pinner;   /* only compared */
	bool unmapped;
	u32 slot;
};

static u32 *word_of(struct vgpu_watch *watch)
{
	return (u32 *)page_address(watch->process->watch_page) + watch->slot;
}

/* Neither sleeps nor waits: page tables are being changed. */
static bool invalidate(struct mmu_interval_notifier *notifier, const struct mmu_notifier_range *range,
		       unsigned long sequence)
{
	struct vgpu_watch *watch = container_of(notifier, struct vgpu_watch, notifier);

	mmu_interval_set_seq(notifier, sequence);
	/* Write-protected to see writes, the page remains. */
	if (range->event == MMU_NOTIFY_SOFT_DIRTY)
		return true;
	/* Pinning makes pages private that were shared or the zero page: each before it is pinned itself. */
	if (READ_ONCE(watch->pinner) == current)
		return true;
	WRITE_ONCE(*word_of(watch), 0);
	/* Freed memory must not stay pinned until the process looks; all of it goes with the address space. */
	if (range->event == MMU_NOTIFY_UNMAP && atomic_read(&range->mm->mm_users) &&
	    range->start <= notifier->interval_tree.start && range->end > notifier->interval_tree.last) {
		WRITE_ONCE(watch->unmapped, true);
		vgpu_process_reap(watch->process);
	}
	return true;
}

static const struct mmu_interval_notifier_ops operations = {
	.invalidate = invalidate,
};

struct vgpu_watch *vgpu_watch_start(struct vgpu_process *process, u64 va, u64 bytes, u32 id)
{
	struct vgpu_watch *watch = kzalloc(sizeof(*watch), GFP_KERNEL_ACCOUNT);
	int slot, error;

	if (!watch)
		return ERR_PTR(-ENOMEM);
	slot = ida_alloc_max(&process->watch_slots, VGPU_WATCH_SLOTS - 1, GFP_KERNEL_ACCOUNT);
	if (slot < 0) {
		kfree(watch);
		return ERR_PTR(slot);
	}
	watch->process = process;
	watch->slot = slot;
	watch->pinner = current;
	WRITE_ONCE(*word_of(watch), id);
	error = mmu_interval_notifier_insert(&watch->notifier, process->mm, va, bytes, &operations);
	if (error) {
		WRITE_ONCE(*word_of(watch), 0);
		ida_free(&process->watch_slots, slot);
		kfree(watch);
		return ERR_PTR(error);
	}
	mmu_interval_read_begin(&watch->notifier);
	return watch;
}

void vgpu_watch_pinned(struct vgpu_watch *watch)
{
	WRITE_ONCE(watch->pinner, NULL);
}

u32 vgpu_watch_slot(struct vgpu_watch *watch)
{
	return watch->slot;
}

bool vgpu_watch_unmapped(struct vgpu_watch *watch)
{
	return watch && READ_ONCE(watch->unmapped);
}

void vgpu_watch_end(struct vgpu_watch *watch)
{
	if (!watch)
		return;
	mmu_interval_notifier_remove(&watch->notifier);
	WRITE_ONCE(*word_of(watch), 0);
	ida_free(&watch->process->watch_slots, watch->slot);
	kfree(watch);
}

int vgpu_watch_map(struct vgpu_process *process, struct vm_area_struct *vma)
{
	if (vma->vm_end - vma->vm_start != VGPU_WATCH_BYTES || !(vma->vm_flags & VM_SHARED) ||
	    (vma->vm_flags & (VM_WRITE | VM_EXEC)))
		return -EINVAL;
	vgpu_vma_clear(vma, VM_MAYWRITE | VM_MAYEXEC);
	vgpu_vma_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	return vm_insert_page(vma, vma->vm_start, process->watch_page);
}
