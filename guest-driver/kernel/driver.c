// SPDX-License-Identifier: GPL-2.0-only
/* The virtio driver: probe, remove, and when a device counts as lost. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/idr.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio_config.h>

#include "compat.h"
#include "vgpu.h"

static DEFINE_IDA(numbers);

static void device_release(struct kref *refs)
{
	struct vgpu_device *device = container_of(refs, struct vgpu_device, refs);

	xa_destroy(&device->processes);
	kfree(device->event_buffers);
	kfree(device);
}

void vgpu_device_get(struct vgpu_device *device)
{
	kref_get(&device->refs);
}

void vgpu_device_put(struct vgpu_device *device)
{
	kref_put(&device->refs, device_release);
}

static void wake_everyone(struct vgpu_device *device)
{
	struct vgpu_process *process;
	unsigned long id, flags;

	wake_up_all(&device->slots);
	xa_lock_irqsave(&device->processes, flags);
	xa_for_each(&device->processes, id, process)
		wake_up_all(&process->wait);
	xa_unlock_irqrestore(&device->processes, flags);
}

void vgpu_device_break(struct vgpu_device *device, const char *why)
{
	if (READ_ONCE(device->gone) || xchg(&device->broken, true))
		return;
	pr_err("%s: %s; reload the driver or restart the machine\n", device->name, why);
	wake_everyone(device);
}

bool vgpu_device_usable(struct vgpu_device *device)
{
	return !READ_ONCE(device->gone) && !READ_ONCE(device->broken);
}

bool vgpu_device_vanished(struct vgpu_device *device)
{
	u32 version;

	virtio_cread_le(device->vdev, struct vgpu_virtio_config, abi_version, &version);
	return version == ~0u;
}

static void config_changed(struct virtio_device *vdev)
{
	struct vgpu_device *device = vdev->priv;

	if (device && vdev->config->get_status(vdev) & VIRTIO_CONFIG_S_NEEDS_RESET)
		vgpu_device_break(device, "the host asks for a reset");
}

static struct vgpu_device *device_new(struct virtio_device *vdev)
{
	struct vgpu_device *device = kzalloc(sizeof(*device), GFP_KERNEL);

	if (!device)
		return NULL;
	device->event_buffers = kcalloc(VGPU_EVENT_BUFFERS, sizeof(*device->event_buffers), GFP_KERNEL);
	device->number = ida_alloc(&numbers, GFP_KERNEL);
	if (!device->event_buffers || device->number < 0) {
		if (device->number >= 0)
			ida_free(&numbers, device->number);
		kfree(device->event_buffers);
		kfree(device);
		return NULL;
	}
	kref_init(&device->refs);
	device->vdev = vdev;
	spin_lock_init(&device->control_lock);
	init_waitqueue_head(&device->slots);
	init_completion(&device->removed);
	xa_init_flags(&device->processes, XA_FLAGS_LOCK_IRQ | XA_FLAGS_ALLOC1);
	spin_lock_init(&device->limbo_lock);
	INIT_LIST_HEAD(&device->limbo);
	snprintf(device->name, sizeof(device->name), "vgpu%d", device->number);
	device->misc.minor = MISC_DYNAMIC_MINOR;
	device->misc.name = device->name;
	device->misc.fops = &vgpu_file_operations;
	device->misc.mode = 0666;
	device->misc.parent = &vdev->dev;
	return device;
}

static int start(struct vgpu_device *device)
{
	struct virtqueue *queues[VGPU_QUEUE_COUNT];
	int error = vgpu_find_queues(device->vdev, queues, vgpu_control_callback, vgpu_event_callback);

	if (error)
		return error;
	device->control = queues[VGPU_QUEUE_CONTROL];
	device->event = queues[VGPU_QUEUE_EVENT];
	virtio_device_ready(device->vdev);
	error = vgpu_event_start(device);
	if (!error)
		error = misc_register(&device->misc);
	if (error) {
		virtio_reset_device(device->vdev);
		device->vdev->config->del_vqs(device->vdev);
	}
	return error;
}

static int vgpu_probe(struct virtio_device *vdev)
{
	struct vgpu_device *device;
	u8 name[sizeof_field(struct vgpu_virtio_config, name)];
	u32 version;
	int error;

	virtio_cread_le(vdev, struct vgpu_virtio_config, abi_version, &version);
	if (version != VGPU_ABI_VERSION) {
		dev_err(&vdev->dev, "the host speaks version %u, this driver version %u\n", version, VGPU_ABI_VERSION);
		return -EPROTO;
	}
	device = device_new(vdev);
	if (!device)
		return -ENOMEM;
	vdev->priv = device;
	error = start(device);
	if (error) {
		vdev->priv = NULL;
		ida_free(&numbers, device->number);
		vgpu_device_put(device);
		return error;
	}
	virtio_cread_bytes(vdev, offsetof(struct vgpu_virtio_config, name), name, sizeof(name));
	pr_info("%s: virtual GPU '%.*s'\n", device->name, (int)strnlen(name, sizeof(name)), name);
	return 0;
}

/* After a reset the host touches nothing of ours, so what dead processes left behind can go. */
static void end_limbo(struct vgpu_device *device)
{
	struct vgpu_process *process, *next;
	LIST_HEAD(dead);

	spin_lock(&device->limbo_lock);
	list_splice_init(&device->limbo, &dead);
	spin_unlock(&device->limbo_lock);
	list_for_each_entry_safe(process, next, &dead, limbo) {
		list_del_init(&process->limbo);
		if (device->quiet)
			vgpu_process_free_pages(process);
		vgpu_process_put(process);
	}
}

/*
 * Open files outlive this: they keep `device` and get errors. A session that has died cannot finish a reset
 * (the status register reads as all ones for ever), so it is not asked for one, and pages that it may have
 * shared with a runner stay pinned until the machine restarts.
 */
static void vgpu_remove(struct virtio_device *vdev)
{
	struct vgpu_device *device = vdev->priv;
	const bool vanished = vgpu_device_vanished(device);

	misc_deregister(&device->misc);
	ida_free(&numbers, device->number);
	spin_lock_irq(&device->control_lock);
	WRITE_ONCE(device->gone, true);
	spin_unlock_irq(&device->control_lock);

	if (vanished) {
		pr_err("%s: its session is gone; memory in use by dead processes is not given back\n", device->name);
		virtio_break_device(vdev);
		virtio_synchronize_cbs(vdev);
	} else {
		virtio_reset_device(vdev);
		device->quiet = true;
	}
	vgpu_control_drain(device);
	vdev->config->del_vqs(vdev);
	complete_all(&device->removed);
	wake_everyone(device);
	end_limbo(device);
	vdev->priv = NULL;
	vgpu_device_put(device);
}

static const struct virtio_device_id ids[] = {
	{ VGPU_VIRTIO_ID, VIRTIO_DEV_ANY_ID },
	{ 0 },
};
MODULE_DEVICE_TABLE(virtio, ids);

static struct virtio_driver vgpu_driver = {
	.driver.name = KBUILD_MODNAME,
	.driver.owner = THIS_MODULE,
	.id_table = ids,
	.probe = vgpu_probe,
	.remove = vgpu_remove,
	.config_changed = config_changed,
};
module_virtio_driver(vgpu_driver);

MODULE_DESCRIPTION("Bandsaw virtual GPU");
MODULE_LICENSE("GPL");
