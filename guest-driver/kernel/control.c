// SPDX-License-Identifier: GPL-2.0-only
/* Requests to the session, whatever carries them. */
#include <linux/slab.h>

#include "vgpu.h"

struct vgpu_request *vgpu_request_new(u32 type, u32 process, u32 bytes)
{
	struct vgpu_request *request = kzalloc(sizeof(*request), GFP_KERNEL);

	if (!request)
		return NULL;
	refcount_set(&request->refs, 1);
	init_completion(&request->done);
	request->bytes = bytes;
	request->body.header.type = cpu_to_le32(type);
	request->body.header.process = cpu_to_le32(process);
	return request;
}

/* Also called with interrupts off. */
void vgpu_request_put(struct vgpu_request *request)
{
	unsigned int i;

	if (!refcount_dec_and_test(&request->refs))
		return;
	if (request->bus)
		request->bus->release(request);
	for (i = 0; i < request->page_count; i++)
		__free_page(request->pages[i]);
	kfree(request->pages);
	kfree(request);
}

void vgpu_request_complete(struct vgpu_request *request, bool answered)
{
	request->answered = answered;
	complete_all(&request->done);
	vgpu_request_put(request);
}

void vgpu_requests_completed(struct vgpu_device *device)
{
	WRITE_ONCE(device->completions, device->completions + 1);
	wake_up_all(&device->slots);
}

/* -ENOSPC (or -ENOMEM) when it should be tried again. */
static int enqueue(struct vgpu_device *device, struct vgpu_request *request)
{
	int error = -EPIPE;

	/* Under the lock, so that remove does not take the bus away in between. */
	spin_lock_irq(&device->control_lock);
	if (vgpu_device_usable(device)) {
		refcount_inc(&request->refs);
		error = device->bus->enqueue(device, request);
		if (error)
			refcount_dec(&request->refs);
	}
	spin_unlock_irq(&device->control_lock);
	return error;
}

int vgpu_request_submit(struct vgpu_device *device, struct vgpu_request *request, bool killable)
{
	unsigned long deadline = jiffies + VGPU_REPLY_TIMEOUT;
	int error;

	request->bus = device->bus;
	error = device->bus->prepare ? device->bus->prepare(device, request) : 0;
	if (error)
		return error;
	for (;;) {
		const u32 seen = READ_ONCE(device->completions);

		error = enqueue(device, request);
		if (error != -ENOSPC && error != -ENOMEM)
			break;
		if (time_after(jiffies, deadline)) {
			vgpu_device_break(device, "no request is taken any more");
			error = -EPIPE;
			break;
		}
		if (killable && fatal_signal_pending(current)) {
			error = -EINTR;
			break;
		}
		wait_event_timeout(device->slots, READ_ONCE(device->completions) != seen || !vgpu_device_usable(device),
				   HZ / 10);
	}
	return error;
}

static int answer_of(struct vgpu_request *request)
{
	const u32 status = le32_to_cpu(request->reply.status);

	if (!request->answered)
		return -EPIPE;
	if (!status)
		return 0;
	return status < MAX_ERRNO ? -(int)status : -EPROTO;
}

/* A request that nobody is waiting for any more keeps its own reference in the queue. */
static long wait_once(struct vgpu_request *request, bool killable, long timeout)
{
	if (killable)
		return wait_for_completion_killable_timeout(&request->done, timeout);
	return wait_for_completion_timeout(&request->done, timeout);
}

int vgpu_ping(struct vgpu_device *device, u32 process, long timeout)
{
	struct vgpu_request *request;
	long left;
	int error;

	request = vgpu_request_new(VGPU_CTL_PING, process, sizeof(request->body.header));
	if (!request)
		return -ENOMEM;
	error = vgpu_request_submit(device, request, true);
	if (!error) {
		left = wait_once(request, true, timeout);
		if (left > 0)
			error = answer_of(request);
		else
			error = left ? -EINTR : -EPIPE;
	}
	vgpu_request_put(request);
	return error;
}

/* A session that is alive answers in the end; one that does not even answer a ping is given up. */
static bool session_answers(struct vgpu_device *device)
{
	if (!vgpu_device_usable(device))
		return false;
	if (vgpu_ping(device, 0, VGPU_REPLY_TIMEOUT) != -EPIPE)
		return true;
	vgpu_device_break(device, "the session does not answer");
	return false;
}

int vgpu_request_wait(struct vgpu_device *device, struct vgpu_request *request, bool killable, long limit)
{
	const unsigned long start = jiffies;

	for (;;) {
		long left = wait_once(request, killable, VGPU_REPLY_TIMEOUT);

		if (left > 0)
			return answer_of(request);
		if (left < 0)
			return -EINTR;
		if (!session_answers(device))
			return completion_done(&request->done) ? answer_of(request) : -EPIPE;
		if (limit && time_after(jiffies, start + limit))
			return -ETIMEDOUT;
	}
}

int vgpu_request_send(struct vgpu_device *device, struct vgpu_request *request, bool *maybe_done)
{
	int error = vgpu_request_submit(device, request, true);

	*maybe_done = false;
	if (error)
		return error;
	error = vgpu_request_wait(device, request, true, 0);
	/* Read after the wait: an answer that comes now is not one this caller has seen. */
	*maybe_done = !error || !(completion_done(&request->done) && request->answered);
	return error;
}

int vgpu_query(struct vgpu_device *device, struct vgpu_ioc_query *query)
{
	struct vgpu_request *request = vgpu_request_new(VGPU_CTL_QUERY, 0, sizeof(request->body.query));
	bool maybe_done;
	int error;

	if (!request)
		return -ENOMEM;
	request->body.query.what = cpu_to_le32(query->what);
	request->body.query.index = cpu_to_le32(query->index);
	error = vgpu_request_send(device, request, &maybe_done);
	if (!error)
		memcpy(query->answer, request->reply.message, sizeof(query->answer));
	vgpu_request_put(request);
	return error;
}
