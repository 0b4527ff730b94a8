// SPDX-License-Identifier: GPL-2.0-only
/* Lanes: zeroed pages of ours, mapped into the process and handed to the host. */
#include <linux/mm.h>
#include <linux/slab.h>

#include "compat.h"
#include "vgpu.h"

void vgpu_lane_free(struct vgpu_lane *lane)
{
	unsigned int i;

	/* Pages that are still mapped live on until they are unmapped. */
	for (i = 0; i < VGPU_LANE_PAGES && lane->pages[i]; i++)
		__free_page(lane->pages[i]);
	kfree(lane);
}

static struct vgpu_lane *lane_new(void)
{
	struct vgpu_lane *lane = kzalloc(sizeof(*lane), GFP_KERNEL_ACCOUNT);
	unsigned int i;

	if (!lane)
		return NULL;
	for (i = 0; i < VGPU_LANE_PAGES; i++) {
		lane->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!lane->pages[i]) {
			vgpu_lane_free(lane);
			return NULL;
		}
	}
	return lane;
}

static int announce(struct vgpu_process *process, struct vgpu_lane *lane, u32 id, bool *maybe_done)
{
	struct vgpu_request *request;
	int error;

	*maybe_done = false;
	request = vgpu_request_new(VGPU_CTL_ADD_LANE, process->id, sizeof(request->body.add));
	if (!request)
		return -ENOMEM;
	request->body.add.id = cpu_to_le32(id);
	error = vgpu_segments_add(request, lane->pages, VGPU_LANE_PAGES);
	if (!error)
		error = vgpu_request_send(process->device, request, maybe_done);
	vgpu_request_put(request);
	return error;
}

int vgpu_lane_add(struct vgpu_process *process, struct vgpu_ioc_lane *ioc)
{
	struct vgpu_lane *lane;
	bool maybe_done;
	u32 id;
	int error = vgpu_process_usable(process);

	if (error)
		return error;
	lane = lane_new();
	if (!lane)
		return -ENOMEM;
	/* The id is taken, but names no lane before the host has agreed. */
	error = xa_alloc(&process->lanes, &id, NULL, XA_LIMIT(0, VGPU_LANES_MAX - 1), GFP_KERNEL_ACCOUNT);
	if (error) {
		vgpu_lane_free(lane);
		return error == -EBUSY ? -EMFILE : error;
	}
	error = announce(process, lane, id, &maybe_done);
	if (maybe_done) {
		xa_store(&process->lanes, id, lane, GFP_KERNEL_ACCOUNT);
	} else {
		xa_erase(&process->lanes, id);
		vgpu_lane_free(lane);
	}
	ioc->id = id;
	ioc->reserved = 0;
	return error;
}

int vgpu_lane_drop(struct vgpu_process *process, u32 id)
{
	struct vgpu_request *request;
	struct vgpu_lane *lane;
	bool maybe_done;
	int error = vgpu_process_usable(process);

	if (error)
		return error;
	request = vgpu_request_new(VGPU_CTL_DROP_LANE, process->id, sizeof(request->body.drop));
	if (!request)
		return -ENOMEM;
	request->body.drop.id = cpu_to_le32(id);
	xa_lock(&process->lanes);
	lane = xa_load(&process->lanes, id);
	/* The slot exists, so this allocates nothing. */
	if (lane)
		__xa_store(&process->lanes, id, XA_ZERO_ENTRY, 0);
	xa_unlock(&process->lanes);
	if (!lane) {
		vgpu_request_put(request);
		return -ENOENT;
	}
	error = vgpu_request_send(process->device, request, &maybe_done);
	vgpu_request_put(request);
	if (error) {
		/* The host may still use it: it goes when the process does. */
		xa_store(&process->lanes, id, lane, GFP_KERNEL_ACCOUNT);
		return error;
	}
	xa_erase(&process->lanes, id);
	vgpu_lane_free(lane);
	return 0;
}

int vgpu_lane_map(struct vgpu_process *process, struct vm_area_struct *vma)
{
	const unsigned long id = vma->vm_pgoff / VGPU_LANE_PAGES;
	struct page *pages[VGPU_LANE_PAGES];
	struct vgpu_lane *lane;
	unsigned long i;
	int error = 0;

	if (vma->vm_pgoff % VGPU_LANE_PAGES || vma->vm_end - vma->vm_start != VGPU_LANE_BYTES ||
	    !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	/* A reference for each page, so that another thread may drop the lane meanwhile. */
	xa_lock(&process->lanes);
	lane = xa_load(&process->lanes, id);
	for (i = 0; lane && i < VGPU_LANE_PAGES; i++) {
		pages[i] = lane->pages[i];
		get_page(pages[i]);
	}
	xa_unlock(&process->lanes);
	if (!lane)
		return -ENOENT;
	vgpu_vma_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	for (i = 0; i < VGPU_LANE_PAGES && !error; i++)
		error = vm_insert_page(vma, vma->vm_start + i * PAGE_SIZE, pages[i]);
	for (i = 0; i < VGPU_LANE_PAGES; i++)
		put_page(pages[i]);
	return error;
}
