// SPDX-License-Identifier: GPL-2.0-only
/* The device, whatever bus it is on: its begin, its end, and when it counts as lost. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/idr.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "vgpu.h"

static DEFINE_IDA(numbers);
static DEFINE_MUTEX(shown_lock);
static LIST_HEAD(shown);

static void device_release(struct kref *refs)
{
	struct vgpu_device *device = container_of(refs, struct vgpu_device, refs);

	xa_destroy(&device->processes);
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
	pr_err("%s: %s; if it does not come back by itself, reload the driver or restart the machine\n", device->name,
	       why);
	wake_everyone(device);
}

bool vgpu_device_usable(struct vgpu_device *device)
{
	return !READ_ONCE(device->gone) && !READ_ONCE(device->broken);
}

static struct vgpu_device *device_alloc(const char *vgpu)
{
	struct vgpu_device *device = kzalloc(sizeof(*device), GFP_KERNEL);

	if (!device)
		return NULL;
	device->number = ida_alloc(&numbers, GFP_KERNEL);
	if (device->number < 0) {
		kfree(device);
		return NULL;
	}
	kref_init(&device->refs);
	device->gone = true;
	strscpy(device->vgpu, vgpu, sizeof(device->vgpu));
	vgpu_device_init_away(device);
	spin_lock_init(&device->control_lock);
	init_waitqueue_head(&device->slots);
	init_completion(&device->removed);
	xa_init_flags(&device->processes, XA_FLAGS_LOCK_IRQ | XA_FLAGS_ALLOC1);
	spin_lock_init(&device->limbo_lock);
	INIT_LIST_HEAD(&device->limbo);
	snprintf(device->name, sizeof(device->name), "vgpu%d", device->number);
	device->misc.name = device->name;
	device->misc.fops = &vgpu_file_operations;
	device->misc.mode = 0666;
	return device;
}

struct vgpu_device *vgpu_device_new(struct device *parent, const struct vgpu_bus *bus, void *on_bus, const char *vgpu)
{
	struct vgpu_device *device = vgpu[0] ? vgpu_device_unpark(vgpu) : NULL;

	if (!device)
		device = device_alloc(vgpu);
	if (!device)
		return NULL;
	device->bus = bus;
	device->on_bus = on_bus;
	device->broken = false;
	device->quiet = false;
	reinit_completion(&device->removed);
	device->misc.minor = MISC_DYNAMIC_MINOR;
	device->misc.parent = parent;
	return device;
}

void vgpu_device_discard(struct vgpu_device *device)
{
	if (vgpu_device_park(device))
		return;
	ida_free(&numbers, device->number);
	vgpu_device_put(device);
}

static void set_gone(struct vgpu_device *device, bool gone)
{
	spin_lock_irq(&device->control_lock);
	WRITE_ONCE(device->gone, gone);
	spin_unlock_irq(&device->control_lock);
}

int vgpu_device_show(struct vgpu_device *device, const char *name)
{
	int error;

	set_gone(device, false);
	error = misc_register(&device->misc);
	if (error) {
		set_gone(device, true);
		return error;
	}
	pr_info("%s: virtual GPU '%s'\n", device->name, name);
	mutex_lock(&shown_lock);
	list_add_tail(&device->shown, &shown);
	mutex_unlock(&shown_lock);
	vgpu_device_take_back(device);
	return 0;
}

struct vgpu_device *vgpu_device_find(void)
{
	struct vgpu_device *device, *found = NULL;

	mutex_lock(&shown_lock);
	list_for_each_entry(device, &shown, shown) {
		if (vgpu_device_usable(device)) {
			vgpu_device_get(device);
			found = device;
			break;
		}
	}
	mutex_unlock(&shown_lock);
	return found;
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

void vgpu_device_hide(struct vgpu_device *device)
{
	mutex_lock(&shown_lock);
	list_del(&device->shown);
	mutex_unlock(&shown_lock);
	misc_deregister(&device->misc);
	cancel_delayed_work_sync(&device->return_work);
	set_gone(device, true);
}

void vgpu_device_finish(struct vgpu_device *device, bool quiet)
{
	device->on_bus = NULL;
	device->quiet = quiet;
	complete_all(&device->removed);
	wake_everyone(device);
	end_limbo(device);
	vgpu_device_lose(device);
	vgpu_device_discard(device);
}

static int __init vgpu_init(void)
{
	int error = vgpu_virtio_register();

	if (error)
		return error;
	error = vgpu_xen_register();
	if (error)
		vgpu_virtio_unregister();
	return error;
}
module_init(vgpu_init);

static void __exit vgpu_exit(void)
{
	vgpu_xen_unregister();
	vgpu_virtio_unregister();
}
module_exit(vgpu_exit);

MODULE_DESCRIPTION("Bandsaw virtual GPU");
MODULE_LICENSE("GPL");
