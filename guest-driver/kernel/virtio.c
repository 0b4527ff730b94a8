// SPDX-License-Identifier: GPL-2.0-only
/* The bus virtio: the control queue carries requests, the event queue says whom to wake. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "vgpu.h"

#define EVENT_BUFFERS 64

struct vgpu_virtio {
	struct virtio_device *vdev;
	struct virtqueue *control;
	struct virtqueue *event;
	struct vgpu_event events[EVENT_BUFFERS];
	bool resetting;
};

/* The request's bytes as one list, the device-readable part first. */
static int prepare(struct vgpu_device *device, struct vgpu_request *request)
{
	struct scatterlist *list = kmalloc_array(request->page_count + 2, sizeof(*list), GFP_KERNEL);
	size_t left = request->tail_bytes;
	unsigned int i;

	if (!list)
		return -ENOMEM;
	sg_init_table(list, request->page_count + 2);
	sg_set_buf(&list[0], &request->body, request->bytes);
	for (i = 0; i < request->page_count; i++) {
		const size_t bytes = min_t(size_t, left, PAGE_SIZE);

		sg_set_page(&list[1 + i], request->pages[i], bytes, 0);
		left -= bytes;
	}
	sg_mark_end(&list[request->page_count]);
	sg_set_buf(&list[request->page_count + 1], &request->reply, sizeof(request->reply));
	request->carried = list;
	return 0;
}

static int enqueue(struct vgpu_device *device, struct vgpu_request *request)
{
	struct vgpu_virtio *bus = device->on_bus;
	struct scatterlist *list = request->carried;
	struct scatterlist *lists[] = { list, &list[request->page_count + 1] };
	const int error = virtqueue_add_sgs(bus->control, lists, 1, 1, request, GFP_ATOMIC);

	if (!error && virtqueue_kick_prepare(bus->control))
		virtqueue_notify(bus->control);
	return error;
}

static void release(struct vgpu_request *request)
{
	kfree(request->carried);
}

/* The host has the guest's RAM mapped: addresses suffice. */
static int share(struct vgpu_device *device, struct vgpu_request *request, struct page **pages, unsigned long count,
		 bool read_only, struct vgpu_shared **shared)
{
	return vgpu_segments_add(request, pages, count);
}

static const struct vgpu_bus bus_operations = {
	.prepare = prepare,
	.enqueue = enqueue,
	.release = release,
	.share = share,
};

static void control_callback(struct virtqueue *queue)
{
	struct vgpu_device *device = queue->vdev->priv;
	struct vgpu_request *request;
	unsigned long flags;
	unsigned int bytes;

	spin_lock_irqsave(&device->control_lock, flags);
	do {
		virtqueue_disable_cb(queue);
		while ((request = virtqueue_get_buf(queue, &bytes)))
			vgpu_request_complete(request, bytes >= sizeof(request->reply));
	} while (!virtqueue_enable_cb(queue));
	spin_unlock_irqrestore(&device->control_lock, flags);
	vgpu_requests_completed(device);
}

/* After the queues were stopped: fails what was on its way. */
static void drain(struct vgpu_device *device, struct vgpu_virtio *bus)
{
	struct vgpu_request *request;

	spin_lock_irq(&device->control_lock);
	while ((request = virtqueue_detach_unused_buf(bus->control)))
		vgpu_request_complete(request, false);
	while (virtqueue_detach_unused_buf(bus->event))
		;
	spin_unlock_irq(&device->control_lock);
}

static int offer(struct vgpu_virtio *bus, struct vgpu_event *buffer)
{
	struct scatterlist list;

	sg_init_one(&list, buffer, sizeof(*buffer));
	return virtqueue_add_inbuf(bus->event, &list, 1, buffer, GFP_ATOMIC);
}

static int offer_all(struct vgpu_device *device, struct vgpu_virtio *bus)
{
	int i, error = 0;

	spin_lock_irq(&device->control_lock);
	for (i = 0; i < EVENT_BUFFERS && !error; i++)
		error = offer(bus, &bus->events[i]);
	virtqueue_kick(bus->event);
	spin_unlock_irq(&device->control_lock);
	return i > 1 ? 0 : error;
}

static void event_callback(struct virtqueue *queue)
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
				offer(device->on_bus, buffer);
		}
	} while (!virtqueue_enable_cb(queue));
	virtqueue_kick(queue);
	spin_unlock_irqrestore(&device->control_lock, flags);
}

/* Not the device's: it outlives what it removes. */
static struct workqueue_struct *resets;

struct reset {
	struct work_struct work;
	struct device *device;
};

static void reset_work(struct work_struct *work)
{
	struct reset *reset = container_of(work, struct reset, work);

	if (device_reprobe(reset->device))
		dev_err(reset->device, "cannot be used again: reload the driver\n");
	put_device(reset->device);
	kfree(reset);
}

/* Its queues mean nothing to the host any more: all processes end, and the device begins anew. */
static void config_changed(struct virtio_device *vdev)
{
	struct vgpu_device *device = vdev->priv;
	struct reset *reset;

	if (!device || !(vdev->config->get_status(vdev) & VIRTIO_CONFIG_S_NEEDS_RESET))
		return;
	vgpu_device_break(device, "the host asks for a reset");
	if (READ_ONCE(device->gone) || xchg(&((struct vgpu_virtio *)device->on_bus)->resetting, true))
		return;
	reset = kzalloc(sizeof(*reset), GFP_ATOMIC);
	if (!reset)
		return;
	INIT_WORK(&reset->work, reset_work);
	reset->device = get_device(&vdev->dev);
	queue_work(resets, &reset->work);
}

static int start(struct vgpu_device *device, struct vgpu_virtio *bus, const char *name)
{
	struct virtio_device *vdev = bus->vdev;
	struct virtqueue *queues[VGPU_QUEUE_COUNT];
	int error = vgpu_find_queues(vdev, queues, control_callback, event_callback);

	if (error)
		return error;
	bus->control = queues[VGPU_QUEUE_CONTROL];
	bus->event = queues[VGPU_QUEUE_EVENT];
	virtio_device_ready(vdev);
	error = offer_all(device, bus);
	if (!error)
		error = vgpu_device_show(device, name);
	if (error) {
		virtio_reset_device(vdev);
		vdev->config->del_vqs(vdev);
	}
	return error;
}

static int probe(struct virtio_device *vdev)
{
	struct vgpu_device *device;
	struct vgpu_virtio *bus;
	char name[sizeof(device->vgpu)] = "";
	u32 version;
	int error;

	virtio_cread_le(vdev, struct vgpu_virtio_config, abi_version, &version);
	if (version != VGPU_ABI_VERSION) {
		dev_err(&vdev->dev, "the host speaks version %u, this driver version %u\n", version, VGPU_ABI_VERSION);
		return -EPROTO;
	}
	bus = kzalloc(sizeof(*bus), GFP_KERNEL);
	if (!bus)
		return -ENOMEM;
	bus->vdev = vdev;
	virtio_cread_bytes(vdev, offsetof(struct vgpu_virtio_config, name), name, sizeof(name) - 1);
	device = vgpu_device_new(&vdev->dev, &bus_operations, bus, name);
	if (!device) {
		kfree(bus);
		return -ENOMEM;
	}
	vdev->priv = device;
	error = start(device, bus, name);
	if (error) {
		vdev->priv = NULL;
		vgpu_device_discard(device);
		kfree(bus);
	}
	return error;
}

/* The device reads as all ones: the hypervisor has lost its session. */
static bool has_vanished(struct virtio_device *vdev)
{
	u32 version;

	virtio_cread_le(vdev, struct vgpu_virtio_config, abi_version, &version);
	return version == ~0u;
}

/*
 * Open files outlive this: they keep `device`, and wait for another one or get errors. A session that has died cannot finish a reset
 * (the status register reads as all ones for ever), so it is not asked for one, and pages that it may have
 * shared with a runner stay pinned until the machine restarts.
 */
static void remove(struct virtio_device *vdev)
{
	struct vgpu_device *device = vdev->priv;
	struct vgpu_virtio *bus = device->on_bus;
	const bool vanished = has_vanished(vdev);

	if (!vanished)
		vgpu_device_leave(device);
	vgpu_device_hide(device);
	if (vanished) {
		pr_err("%s: its session is gone; memory in use by dead processes is not given back\n", device->name);
		virtio_break_device(vdev);
		virtio_synchronize_cbs(vdev);
	} else {
		virtio_reset_device(vdev);
	}
	drain(device, bus);
	vdev->config->del_vqs(vdev);
	vdev->priv = NULL;
	vgpu_device_finish(device, !vanished);
	kfree(bus);
}

static const struct virtio_device_id ids[] = {
	{ VGPU_VIRTIO_ID, VIRTIO_DEV_ANY_ID },
	{ 0 },
};
MODULE_DEVICE_TABLE(virtio, ids);

static struct virtio_driver virtio_driver = {
	.driver.name = KBUILD_MODNAME,
	.driver.owner = THIS_MODULE,
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	.config_changed = config_changed,
};

int vgpu_virtio_register(void)
{
	int error;

	resets = alloc_workqueue("vgpu_resets", WQ_UNBOUND, 0);
	if (!resets)
		return -ENOMEM;
	error = register_virtio_driver(&virtio_driver);
	if (error)
		destroy_workqueue(resets);
	return error;
}

void vgpu_virtio_unregister(void)
{
	unregister_virtio_driver(&virtio_driver);
	/* No more come. One that is left finds no driver. */
	destroy_workqueue(resets);
}
