// SPDX-License-Identifier: GPL-2.0-only
/* The event queue: the session says whom to wake. */
#include "vgpu.h"

static int offer(struct vgpu_device *device, struct vgpu_event *buffer)
{
	struct scatterlist list;

	sg_init_one(&list, buffer, sizeof(*buffer));
	return virtqueue_add_inbuf(device->event, &list, 1, buffer, GFP_ATOMIC);
}

int vgpu_event_start(struct vgpu_device *device)
{
	int i, error = 0;

	spin_lock_irq(&device->control_lock);
	for (i = 0; i < VGPU_EVENT_BUFFERS && !error; i++)
		error = offer(device, &device->event_buffers[i]);
	virtqueue_kick(device->event);
	spin_unlock_irq(&device->control_lock);
	return i > 1 ? 0 : error;
}

void vgpu_event_callback(struct virtqueue *queue)
{
	struct vgpu_device *device = queue->vdev->priv;
	struct vgpu_event *buffer;
	unsigned long flags;
	unsigned int bytes;

	spin_lock_irqsave(&device->control_lock, flags);
	do {
		virtqueue_disable_cb(queue);
		while ((buffer = virtqueue_get_buf(queue, &bytes))) {
			if (bytes >= sizeof(*buffer))
				vgpu_process_event(device, le32_to_cpu(buffer->process), le32_to_cpu(buffer->type));
			if (!READ_ONCE(device->gone))
				offer(device, buffer);
		}
	} while (!virtqueue_enable_cb(queue));
	virtqueue_kick(queue);
	spin_unlock_irqrestore(&device->control_lock, flags);
}
