// SPDX-License-Identifier: GPL-2.0-only
/* Requests on the control queue. */
#include <linux/slab.h>
#include <linux/virtio_config.h>

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
	for (i = 0; i < request->page_count; i++)
		__free_page(request->pages[i]);
	kfree(request->pages);
	kfree(request);
}

static void complete_request(struct vgpu_request *request, bool answered)
{
	request->answered = answered;
	complete_all(&request->done);
	vgpu_request_put(request);
}

void vgpu_control_callback(struct virtqueue *queue)
{
	struct vgpu_device *device = queue->vdev->priv;
	struct vgpu_request *request;
	unsigned long flags;
	unsigned int bytes;

	spin_lock_irqsave(&device->control_lock, flags);
	do {
		virtqueue_disable_cb(queue);
		while ((request = virtqueue_get_buf(queue, &bytes)))
			complete_request(request, bytes >= sizeof(request->reply));
	} while (!virtqueue_enable_cb(queue));
	WRITE_ONCE(device->completions, device->completions + 1);
	spin_unlock_irqrestore(&device->control_lock, flags);
	wake_up_all(&device->slots);
}

void vgpu_control_drain(struct vgpu_device *device)
{
	struct vgpu_request *request;

	spin_lock_irq(&device->control_lock);
	while ((request = virtqueue_detach_unused_buf(device->control)))
		complete_request(request, false);
	while (virtqueue_detach_unused_buf(device->event))
		;
	spin_unlock_irq(&device->control_lock);
}

/* The request's bytes as one list, the device-readable part first. */
static struct scatterlist *make_list(struct vgpu_request *request)
{
	struct scatterlist *list = kmalloc_array(request->page_count + 2, sizeof(*list), GFP_KERNEL);
	size_t left = request->tail_bytes;
	unsigned int i;

	if (!list)
		return NULL;
	sg_init_table(list, request->page_count + 2);
	sg_set_buf(&list[0], &request->body, request->bytes);
	for (i = 0; i < request->page_count; i++) {
		const size_t bytes = min_t(size_t, left, PAGE_SIZE);

		sg_set_page(&list[1 + i], request->pages[i], bytes, 0);
		left -= bytes;
	}
	sg_mark_end(&list[request->page_count]);
	sg_set_buf(&list[request->page_count + 1], &request->reply, sizeof(request->reply));
	return list;
}

/* -ENOSPC (or -ENOMEM, for want of an indirect table) when it should be tried again. */
static int enqueue(struct vgpu_device *device, struct vgpu_request *request, struct scatterlist *list)
{
	struct scatterlist *lists[] = { list, &list[request->page_count + 1] };
	bool notify = false;
	int error = -EPIPE;

	spin_lock_irq(&device->control_lock);
	if (vgpu_device_usable(device)) {
		refcount_inc(&request->refs);
		error = virtqueue_add_sgs(device->control, lists, 1, 1, request, GFP_ATOMIC);
		if (error)
			refcount_dec(&request->refs);
		else
			notify = virtqueue_kick_prepare(device->control);
		/* Under the lock, so that remove does not take the queue away in between. */
		if (notify)
			virtqueue_notify(device->control);
	}
	spin_unlock_irq(&device->control_lock);
	return error;
}

int vgpu_request_submit(struct vgpu_device *device, struct vgpu_request *request, bool killable)
{
	struct scatterlist *list = make_list(request);
	unsigned long deadline = jiffies + VGPU_REPLY_TIMEOUT;
	int error;

	if (!list)
		return -ENOMEM;
	for (;;) {
		const u32 seen = READ_ONCE(device->completions);

		error = enqueue(device, request, list);
		if (error != -ENOSPC && error != -ENOMEM)
			break;
		if (time_after(jiffies, deadline)) {
			vgpu_device_break(device, "the control queue stays full");
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
	kfree(list);
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
