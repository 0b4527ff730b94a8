/* SPDX-License-Identifier: GPL-2.0-only */
/* What differs between the kernels we build for (6.1 and later). */
#ifndef VGPU_COMPAT_H
#define VGPU_COMPAT_H

#include <linux/mm.h>
#include <linux/version.h>
#include <linux/virtio_config.h>

#include "vgpu_control.h"

static inline int vgpu_find_queues(struct virtio_device *vdev, struct virtqueue *queues[VGPU_QUEUE_COUNT],
				   vq_callback_t *control, vq_callback_t *event)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
	struct virtqueue_info info[VGPU_QUEUE_COUNT] = {
		[VGPU_QUEUE_CONTROL] = { "control", control },
		[VGPU_QUEUE_EVENT] = { "event", event },
	};

	return virtio_find_vqs(vdev, VGPU_QUEUE_COUNT, queues, info, NULL);
#else
	vq_callback_t *callbacks[VGPU_QUEUE_COUNT] = {
		[VGPU_QUEUE_CONTROL] = control,
		[VGPU_QUEUE_EVENT] = event,
	};
	static const char *const names[VGPU_QUEUE_COUNT] = {
		[VGPU_QUEUE_CONTROL] = "control",
		[VGPU_QUEUE_EVENT] = "event",
	};

	return virtio_find_vqs(vdev, VGPU_QUEUE_COUNT, queues, callbacks, names, NULL);
#endif
}

static inline void vgpu_vma_set(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

static inline void vgpu_vma_clear(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

#endif
