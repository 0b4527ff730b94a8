/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages that a Xen backend may map. */
#ifndef VGPU_GRANTS_H
#define VGPU_GRANTS_H

#include "vgpu.h"

/* struct vgpu_bus's share, unshare and release. */
int vgpu_grants_share(struct vgpu_device *device, struct vgpu_request *request, struct page **pages,
		      unsigned long count, bool read_only, struct vgpu_shared **shared);
void vgpu_grants_unshare(struct vgpu_shared *shared);
void vgpu_grants_release(struct vgpu_request *request);

/* Of a request that names memory: the grant of its list, and how many pages that names; else both 0. */
void vgpu_grants_of(const struct vgpu_request *request, u32 *list, u32 *pages);

#endif
