// SPDX-License-Identifier: GPL-2.0-only
/* Guest processes of the kernel's own: how they begin and end, and their calls. */
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "client_ring.h"

#define CALL_TIMEOUT (60 * HZ) /* of the calls that begin a client */
/* Where a client's memory lies, as the host sees it: nowhere in particular, and outside the address window. */
#define FIRST_VA 0x10000000ull

struct mapping {
	struct list_head list;
	void *address;
};

static int map_ring(struct vgpu_client *client)
{
	struct vgpu_ioc_ring ioc = { 0 };
	struct vgpu_ring *ring;
	int error = vgpu_ring_add(client->process, &ioc);

	if (error)
		return error;
	ring = xa_load(&client->process->rings, ioc.id);
	client->ring = vmap(ring->pages, VGPU_RING_PAGES, VM_MAP, PAGE_KERNEL);
	if (!client->ring)
		return -ENOMEM;
	client->ring->magic = VGPU_RING_MAGIC;
	return 0;
}

/* A host of another release numbers its calls in its own way: finds each of ours by its id. */
static int learn_opcodes(struct vgpu_client *client)
{
	static const u64 ids[VGPU_CALLS] = VGPU_CALL_IDS;
	const struct vgpu_client_call call = { .call = VGPU_CALL_CALL_IDS };
	struct vgpu_reply_call_ids head;
	const u64 *theirs;
	u32 own, opcode;
	int error = vgpu_client_ask(client, &call, &head, sizeof(head), CALL_TIMEOUT);

	if (error)
		return error;
	theirs = head.ids_bytes < VGPU_RING_REPLY_BYTES ? vgpu_client_reply(client, sizeof(head) + head.ids_bytes) :
							  NULL;
	if (!theirs)
		return -EPROTO;
	theirs += sizeof(head) / sizeof(*theirs);
	for (own = VGPU_CALL_CALL_IDS + 1; own < VGPU_CALLS; own++) {
		client->opcodes[own] = 0;
		for (opcode = 1; opcode <= head.ids_bytes / sizeof(*theirs); opcode++) {
			if (theirs[opcode - 1] == ids[own])
				client->opcodes[own] = opcode;
		}
	}
	return 0;
}

static int start(struct vgpu_client *client)
{
	struct vgpu_ioc_hello hello = {
		.schema = {
			.major = cpu_to_le16(VGPU_RELEASE_MAJOR),
			.minor = cpu_to_le16(VGPU_RELEASE_MINOR),
			.patch = cpu_to_le16(VGPU_RELEASE_PATCH),
			.hash = VGPU_SCHEMA_HASH,
		},
	};
	u32 opcode;
	int error = vgpu_process_hello(client->process, &hello);

	if (!error)
		error = map_ring(client);
	if (error)
		return error;
	for (opcode = 0; opcode < VGPU_CALLS; opcode++)
		client->opcodes[opcode] = opcode;
	if (memcmp(&hello.schema, &hello.host_schema, sizeof(hello.schema)))
		error = learn_opcodes(client);
	return error;
}

struct vgpu_client *vgpu_client_open(void)
{
	struct vgpu_device *device = vgpu_device_find();
	struct vgpu_client *client;
	int error;

	if (!device)
		return ERR_PTR(-ENODEV);
	client = kzalloc(sizeof(*client), GFP_KERNEL);
	if (!client) {
		vgpu_device_put(device);
		return ERR_PTR(-ENOMEM);
	}
	INIT_LIST_HEAD(&client->mappings);
	client->next_va = FIRST_VA;
	client->process = vgpu_process_open_kernel(device);
	vgpu_device_put(device);
	if (IS_ERR(client->process)) {
		error = PTR_ERR(client->process);
		kfree(client);
		return ERR_PTR(error);
	}
	error = start(client);
	if (error) {
		vgpu_client_close(client);
		return ERR_PTR(error);
	}
	return client;
}
EXPORT_SYMBOL_GPL(vgpu_client_open);

void vgpu_client_close(struct vgpu_client *client)
{
	struct mapping *mapping, *next;

	/* Our mappings first: the pages are freed with the process, or stay the device's. */
	list_for_each_entry_safe(mapping, next, &client->mappings, list) {
		vunmap(mapping->address);
		kfree(mapping);
	}
	vunmap(client->ring);
	vgpu_process_close(client->process);
	kfree(client);
}
EXPORT_SYMBOL_GPL(vgpu_client_close);

int vgpu_client_share(struct vgpu_client *client, struct vgpu_client_memory *memory)
{
	struct vgpu_ioc_region ioc = { .va = client->next_va, .bytes = PAGE_ALIGN(memory->bytes) };
	struct mapping *mapping = kmalloc(sizeof(*mapping), GFP_KERNEL);
	struct page **pages;
	int error;

	if (!mapping)
		return -ENOMEM;
	error = vgpu_region_make(client->process, &ioc, &pages);
	if (error) {
		kfree(mapping);
		return error;
	}
	client->next_va += ioc.bytes;
	memory->va = ioc.va;
	memory->bytes = ioc.bytes;
	memory->address = vmap(pages, ioc.bytes >> PAGE_SHIFT, VM_MAP, PAGE_KERNEL);
	if (!memory->address) {
		kfree(mapping);
		return -ENOMEM; /* the pages go with the client */
	}
	mapping->address = memory->address;
	list_add(&mapping->list, &client->mappings);
	return 0;
}
EXPORT_SYMBOL_GPL(vgpu_client_share);

void vgpu_client_set_context(struct vgpu_client *client, u64 context)
{
	client->context = context;
}
EXPORT_SYMBOL_GPL(vgpu_client_set_context);

int vgpu_client_post(struct vgpu_client *client, const struct vgpu_client_call *call, long timeout)
{
	return vgpu_client_publish(client, call, timeout);
}
EXPORT_SYMBOL_GPL(vgpu_client_post);

int vgpu_client_ask(struct vgpu_client *client, const struct vgpu_client_call *call, void *reply, u32 reply_bytes,
		    long timeout)
{
	const void *body;
	int error = vgpu_client_publish(client, call, timeout);

	if (!error)
		error = vgpu_client_wait_reply(client, timeout);
	if (!error)
		error = vgpu_client_outcome(client, READ_ONCE(client->ring->reply_result));
	if (error || !reply_bytes)
		return error;
	body = vgpu_client_reply(client, reply_bytes);
	if (!body)
		return -EPROTO;
	memcpy(reply, body, reply_bytes);
	return 0;
}
EXPORT_SYMBOL_GPL(vgpu_client_ask);

u32 vgpu_client_result(struct vgpu_client *client)
{
	return client->result;
}
EXPORT_SYMBOL_GPL(vgpu_client_result);
