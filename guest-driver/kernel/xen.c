// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bus xenbus: a ring of granted pages carries requests and events, an event channel is the doorbell of both sides.
 * The backend is trusted no more than a virtio device is: what it writes is copied once and bounded.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kconfig.h>

#include "vgpu.h"

#if IS_ENABLED(CONFIG_XEN_XENBUS_FRONTEND)

#include <linux/module.h>
#include <linux/pm.h>
#include <linux/slab.h>
#include <xen/events.h>
#include <xen/grant_table.h>
#include <xen/xen.h>
#include <xen/xenbus.h>

#include "grants.h"
#include "vgpu_xen.h"

struct vgpu_xen {
	struct xenbus_device *xdev;
	struct vgpu_device *device; /* NULL: not connected */
	struct vgpu_xen_ring *ring;
	grant_ref_t refs[VGPU_XEN_RING_PAGES];
	evtchn_port_t port;
	int irq;      /* 0: none */
	struct vgpu_request *slots[VGPU_XEN_SLOTS]; /* by tag */
	u32 requests, replies, events; /* ours of the ring's indices */
	bool shown;                 /* /dev/vgpuN is there */
};

static int enqueue(struct vgpu_device *device, struct vgpu_request *request)
{
	struct vgpu_xen *bus = device->on_bus;
	struct vgpu_xen_request *slot;
	u32 tag = 0, list, pages;

	while (tag < VGPU_XEN_SLOTS && bus->slots[tag])
		tag++;
	if (tag == VGPU_XEN_SLOTS)
		return -ENOSPC;
	if (request->bytes > sizeof(slot->body))
		return -EMSGSIZE;
	vgpu_grants_of(request, &list, &pages);
	slot = &bus->ring->requests[bus->requests % VGPU_XEN_SLOTS];
	slot->tag = cpu_to_le32(tag);
	slot->bytes = cpu_to_le32(request->bytes);
	slot->list = cpu_to_le32(list);
	slot->pages = cpu_to_le32(pages);
	memcpy(slot->body, &request->body, request->bytes);
	bus->slots[tag] = request;
	bus->requests++;
	virt_wmb(); /* the request before its index */
	WRITE_ONCE(bus->ring->indices.requests, cpu_to_le32(bus->requests));
	notify_remote_via_irq(bus->irq);
	return 0;
}

static const struct vgpu_bus bus_operations = {
	.enqueue = enqueue,
	.release = vgpu_grants_release,
	.share = vgpu_grants_share,
	.unshare = vgpu_grants_unshare,
};

/* Under control_lock. False: the backend wrote nonsense. */
static bool take_replies(struct vgpu_xen *bus)
{
	const u32 end = le32_to_cpu(READ_ONCE(bus->ring->indices.replies));

	if (end - bus->replies > VGPU_XEN_SLOTS)
		return false;
	virt_rmb(); /* the index before the replies */
	while (bus->replies != end) {
		const struct vgpu_xen_reply *reply = &bus->ring->replies[bus->replies++ % VGPU_XEN_SLOTS];
		const u32 tag = le32_to_cpu(READ_ONCE(reply->tag));
		struct vgpu_request *request = tag < VGPU_XEN_SLOTS ? bus->slots[tag] : NULL;

		if (!request)
			return false;
		bus->slots[tag] = NULL;
		memcpy(&request->reply, &reply->reply, sizeof(request->reply));
		vgpu_request_complete(request, true);
	}
	return true;
}

static bool take_events(struct vgpu_xen *bus)
{
	const u32 end = le32_to_cpu(READ_ONCE(bus->ring->indices.events));

	if (end - bus->events > VGPU_XEN_EVENTS)
		return false;
	virt_rmb(); /* the index before the events */
	while (bus->events != end) {
		const struct vgpu_event *event = &bus->ring->events[bus->events++ % VGPU_XEN_EVENTS];

		vgpu_process_event(bus->device, le32_to_cpu(READ_ONCE(event->process)),
				   le32_to_cpu(READ_ONCE(event->type)));
	}
	virt_mb(); /* they are read before the backend may write over them */
	WRITE_ONCE(bus->ring->indices.events_taken, cpu_to_le32(end));
	return true;
}

static irqreturn_t on_event(int irq, void *data)
{
	struct vgpu_xen *bus = data;
	struct vgpu_device *device = bus->device;
	unsigned long flags;
	bool sound;

	spin_lock_irqsave(&device->control_lock, flags);
	sound = take_replies(bus) && take_events(bus);
	spin_unlock_irqrestore(&device->control_lock, flags);
	vgpu_requests_completed(device);
	if (!sound)
		vgpu_device_break(device, "the backend's ring makes no sense");
	return IRQ_HANDLED;
}

static int write_keys(struct vgpu_xen *bus)
{
	struct xenbus_transaction transaction;
	char key[16];
	int i, error;

again:
	error = xenbus_transaction_start(&transaction);
	if (error)
		return error;
	for (i = 0; i < VGPU_XEN_RING_PAGES && !error; i++) {
		snprintf(key, sizeof(key), "ring-ref%d", i);
		error = xenbus_printf(transaction, bus->xdev->nodename, key, "%u", bus->refs[i]);
	}
	if (!error)
		error = xenbus_printf(transaction, bus->xdev->nodename, "event-channel", "%u", bus->port);
	if (!error)
		error = xenbus_printf(transaction, bus->xdev->nodename, "abi-version", "%u", VGPU_ABI_VERSION);
	if (error) {
		xenbus_transaction_end(transaction, 1);
		return error;
	}
	error = xenbus_transaction_end(transaction, 0);
	if (error == -EAGAIN)
		goto again;
	return error;
}

static void teardown_ring(struct vgpu_xen *bus)
{
	if (bus->irq)
		unbind_from_irqhandler(bus->irq, bus); /* closes the port too */
	else if (bus->port)
		xenbus_free_evtchn(bus->xdev, bus->port);
	bus->irq = 0;
	bus->port = 0;
	xenbus_teardown_ring((void **)&bus->ring, VGPU_XEN_RING_PAGES, bus->refs);
}

static int setup_ring(struct vgpu_xen *bus)
{
	int error = xenbus_setup_ring(bus->xdev, GFP_KERNEL, (void **)&bus->ring, VGPU_XEN_RING_PAGES, bus->refs);

	if (error)
		return error;
	bus->requests = bus->replies = bus->events = 0;
	error = xenbus_alloc_evtchn(bus->xdev, &bus->port);
	if (!error)
		error = bind_evtchn_to_irqhandler(bus->port, on_event, 0, KBUILD_MODNAME, bus);
	if (error >= 0) {
		bus->irq = error;
		error = write_keys(bus);
	}
	if (error)
		teardown_ring(bus);
	return error;
}

/*
 * The backend offers: a device that is not visible before the backend has mapped its ring. What fails is told and left:
 * a change of state would make the backend offer again at once.
 */
static int begin(struct vgpu_xen *bus)
{
	const unsigned int version = xenbus_read_unsigned(bus->xdev->otherend, "abi-version", 0);
	int error;

	if (version != VGPU_ABI_VERSION) {
		xenbus_dev_error(bus->xdev, -EPROTO, "the host speaks version %u, this driver version %u", version,
				 VGPU_ABI_VERSION);
		return -EPROTO;
	}
	bus->device = vgpu_device_new(&bus->xdev->dev, &bus_operations, bus, "");
	if (!bus->device)
		return -ENOMEM;
	bus->device->backend_domain = bus->xdev->otherend_id;
	error = setup_ring(bus);
	if (error) {
		vgpu_device_discard(bus->device);
		bus->device = NULL;
		xenbus_dev_error(bus->xdev, error, "making the ring");
		return error;
	}
	return xenbus_switch_state(bus->xdev, XenbusStateInitialised);
}

static void show(struct vgpu_xen *bus)
{
	char *name = xenbus_read(XBT_NIL, bus->xdev->otherend, "name", NULL);
	const int error = vgpu_device_show(bus->device, IS_ERR(name) ? "?" : name);

	if (!IS_ERR(name))
		kfree(name);
	bus->shown = !error;
	if (error)
		xenbus_dev_error(bus->xdev, error, "making the device file");
	else
		xenbus_switch_state(bus->xdev, XenbusStateConnected);
}

/* What was on its way gets no answer. Pages that the backend has still mapped stay until it has not. */
static void end(struct vgpu_xen *bus)
{
	struct vgpu_device *device = bus->device;
	u32 tag;

	if (!device)
		return;
	if (!bus->shown) {
		teardown_ring(bus);
		bus->device = NULL;
		vgpu_device_discard(device);
		return;
	}
	bus->shown = false;
	vgpu_device_hide(device);
	teardown_ring(bus);
	bus->device = NULL;
	spin_lock_irq(&device->control_lock);
	for (tag = 0; tag < VGPU_XEN_SLOTS; tag++) {
		if (bus->slots[tag])
			vgpu_request_complete(bus->slots[tag], false);
		bus->slots[tag] = NULL;
	}
	spin_unlock_irq(&device->control_lock);
	vgpu_device_finish(device, true);
}

static void backend_changed(struct xenbus_device *xdev, enum xenbus_state state)
{
	struct vgpu_xen *bus = dev_get_drvdata(&xdev->dev);

	switch (state) {
	case XenbusStateInitWait:
		if (xdev->state == XenbusStateInitialising || xdev->state == XenbusStateClosed)
			begin(bus);
		break;
	case XenbusStateConnected:
		if (xdev->state == XenbusStateInitialised)
			show(bus);
		break;
	case XenbusStateClosed:
	case XenbusStateClosing:
		if (xdev->state != XenbusStateClosed && xdev->state != XenbusStateInitialising) {
			end(bus);
			xenbus_switch_state(xdev, XenbusStateClosed);
		}
		break;
	default:
		break;
	}
}

static int probe(struct xenbus_device *xdev, const struct xenbus_device_id *id)
{
	struct vgpu_xen *bus = kzalloc(sizeof(*bus), GFP_KERNEL);

	if (!bus)
		return -ENOMEM;
	bus->xdev = xdev;
	dev_set_drvdata(&xdev->dev, bus);
	return xenbus_switch_state(xdev, XenbusStateInitialising);
}

static void remove(struct xenbus_device *xdev)
{
	struct vgpu_xen *bus = dev_get_drvdata(&xdev->dev);

	end(bus);
	dev_set_drvdata(&xdev->dev, NULL);
	kfree(bus);
}

/*
 * Rings and regions are granted to the old backend, and their contents would not follow. Of all that the kernel asks
 * before a domain is suspended, this alone can refuse: what xenbus_driver.suspend returns is only written to the log.
 */
static int prepare_suspend(struct device *dev)
{
	struct vgpu_xen *bus = dev_get_drvdata(dev);

	if (!bus->device)
		return 0;
	pr_err("a domain with a virtual GPU cannot be suspended or migrated; detach it first\n");
	return -EBUSY;
}

static const struct dev_pm_ops power = {
	.prepare = prepare_suspend,
};

static const struct xenbus_device_id ids[] = {
	{ VGPU_XEN_DEVICE },
	{ "" },
};

MODULE_ALIAS("xen:" VGPU_XEN_DEVICE);

static struct xenbus_driver xen_driver = {
	.ids = ids,
	.probe = probe,
	.remove = remove,
	.otherend_changed = backend_changed,
	.driver.pm = &power,
	.not_essential = true,
};

int vgpu_xen_register(void)
{
	return xen_domain() ? xenbus_register_frontend(&xen_driver) : 0;
}

void vgpu_xen_unregister(void)
{
	if (xen_domain())
		xenbus_unregister_driver(&xen_driver);
}

#else

int vgpu_xen_register(void)
{
	return 0;
}

void vgpu_xen_unregister(void)
{
}

#endif
