// SPDX-License-Identifier: GPL-2.0-only
/* Command rings: zeroed pages of ours, mapped into the process and handed to the host. */
#include <linux/mm.h>
#include <linux/slab.h>

#include "compat.h"
#include "vgpu.h"

void vgpu_ring_free(struct vgpu_process *process, struct vgpu_ring *ring)
{
	unsigned int i;

	vgpu_unshare(process->device, ring->shared);
	/* Pages that are still mapped live on until they are unmapped. */
	for (i = 0; i < VGPU_RING_PAGES && ring->pages[i]; i++)
		__free_page(ring->pages[i]);
	kfree(ring);
}

static struct vgpu_ring *ring_new(struct vgpu_process *process)
{
	struct vgpu_ring *ring = kzalloc(sizeof(*ring), GFP_KERNEL_ACCOUNT);
	unsigned int i;

	if (!ring)
		return NULL;
	for (i = 0; i < VGPU_RING_PAGES; i++) {
		ring->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!ring->pages[i]) {
			vgpu_ring_free(process, ring);
			return NULL;
		}
	}
	return ring;
}

int vgpu_ring_announce(struct vgpu_process *process, struct vgpu_ring *ring, u32 id, bool *maybe_done)
{
	struct vgpu_request *request;
	int error;

	*maybe_done = false;
	request = vgpu_request_new(VGPU_CTL_ADD_RING, process->id, sizeof(request->body.add));
	if (!request)
		return -ENOMEM;
	request->body.add.id = cpu_to_le32(id);
	error = vgpu_share(process->device, request, ring->pages, VGPU_RING_PAGES, false, &ring->shared);
	if (!error)
		error = vgpu_request_send(process->device, request, maybe_done);
	vgpu_request_put(request);
	return error;
}

int vgpu_ring_add(struct vgpu_process *process, struct vgpu_ioc_ring *ioc)
{
	struct vgpu_ring *ring;
	bool maybe_done;
	u32 id;
	int error = vgpu_process_usable(process);

	if (error)
		return error;
	ring = ring_new(process);
	if (!ring)
		return -ENOMEM;
	/* The id is taken, but names no ring before the host has agreed. */
	error = xa_alloc(&process->rings, &id, NULL, XA_LIMIT(0, VGPU_RINGS_MAX - 1), GFP_KERNEL_ACCOUNT);
	if (error) {
		vgpu_ring_free(process, ring);
		return error == -EBUSY ? -EMFILE : error;
	}
	error = vgpu_ring_announce(process, ring, id, &maybe_done);
	if (maybe_done && !vgpu_process_left(process)) {
		xa_store(&process->rings, id, ring, GFP_KERNEL_ACCOUNT);
	} else {
		xa_erase(&process->rings, id);
		vgpu_ring_free(process, ring);
	}
	ioc->id = id;
	ioc->reserved = 0;
	return error;
}

int vgpu_ring_drop(struct vgpu_process *process, u32 id)
{
	struct vgpu_request *request;
	struct vgpu_ring *ring;
	bool maybe_done;
	int error = vgpu_process_usable(process);

	if (error)
		return error;
	request = vgpu_request_new(VGPU_CTL_DROP_RING, process->id, sizeof(request->body.drop));
	if (!request)
		return -ENOMEM;
	request->body.drop.id = cpu_to_le32(id);
	xa_lock(&process->rings);
	ring = xa_load(&process->rings, id);
	/* The slot exists, so this allocates nothing. */
	if (ring)
		__xa_store(&process->rings, id, XA_ZERO_ENTRY, 0);
	xa_unlock(&process->rings);
	if (!ring) {
		vgpu_request_put(request);
		return -ENOENT;
	}
	error = vgpu_request_send(process->device, request, &maybe_done);
	vgpu_request_put(request);
	if (error) {
		/* The host may still use it: it goes when the process does. */
		xa_store(&process->rings, id, ring, GFP_KERNEL_ACCOUNT);
		return error;
	}
	xa_erase(&process->rings, id);
	vgpu_ring_free(process, ring);
	return 0;
}

int vgpu_ring_map(struct vgpu_process *process, struct vm_area_struct *vma)
{
	const unsigned long id = vma->vm_pgoff / VGPU_RING_PAGES;
	struct page *pages[VGPU_RING_PAGES];
	struct vgpu_ring *ring;
	unsigned long i;
	int error = 0;

	if (vma->vm_pgoff % VGPU_RING_PAGES || vma->vm_end - vma->vm_start != VGPU_RING_BYTES ||
	    !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	/* A reference for each page, so that another thread may drop the ring meanwhile. */
	xa_lock(&process->rings);
	ring = xa_load(&process->rings, id);
	for (i = 0; ring && i < VGPU_RING_PAGES; i++) {
		pages[i] = ring->pages[i];
		get_page(pages[i]);
	}
	xa_unlock(&process->rings);
	if (!ring)
		return -ENOENT;
	vgpu_vma_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	for (i = 0; i < VGPU_RING_PAGES && !error; i++)
		error = vm_insert_page(vma, vma->vm_start + i * PAGE_SIZE, pages[i]);
	for (i = 0; i < VGPU_RING_PAGES; i++)
		put_page(pages[i]);
	return error;
}
