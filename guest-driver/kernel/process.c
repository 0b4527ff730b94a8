// SPDX-License-Identifier: GPL-2.0-only
/*
 * One open file is one process on the host. It ends when the file is closed or when the address space that
 * opened it ends, whichever is first: a forked child that keeps the descriptor keeps nothing alive. The kernel's own
 * clients (client.c) are processes too, without a file and without an address space.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cred.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uidgid.h>

#include "vgpu.h"

static void process_release(struct kref *refs)
{
	struct vgpu_process *process = container_of(refs, struct vgpu_process, refs);

	xa_destroy(&process->rings);
	xa_destroy(&process->regions);
	ida_destroy(&process->watch_slots);
	if (process->watch_page)
		__free_page(process->watch_page); /* if it is still mapped, it lives on until it is unmapped */
	if (process->mm)
		mmdrop(process->mm);
	put_pid(process->pid);
	vgpu_device_put(process->device);
	kfree(process);
}

void vgpu_process_put(struct vgpu_process *process)
{
	kref_put(&process->refs, process_release);
}

static void end_work(struct work_struct *work)
{
	struct vgpu_process *process = container_of(work, struct vgpu_process, end_work);

	vgpu_process_end(process);
	vgpu_process_put(process);
}

/* The id of a region to let go of, or 0. */
static u32 find_unmapped(struct vgpu_process *process)
{
	struct vgpu_region *region;
	unsigned long id, found = 0;

	/* A region that is being unpinned leaves the table first, under this lock. */
	xa_lock(&process->regions);
	xa_for_each(&process->regions, id, region) {
		if (vgpu_watch_unmapped(region->watch)) {
			found = id;
			break;
		}
	}
	xa_unlock(&process->regions);
	return found;
}

static void reap_work(struct work_struct *work)
{
	struct vgpu_process *process = container_of(work, struct vgpu_process, reap_work);
	u32 id;

	mutex_lock(&process->lock);
	while (!process->ended && (id = find_unmapped(process))) {
		const int error = vgpu_region_unpin(process, id, VGPU_END_TIMEOUT);

		if (error && error != -ENOENT)
			break;
	}
	mutex_unlock(&process->lock);
	vgpu_process_put(process);
}

void vgpu_process_reap(struct vgpu_process *process)
{
	kref_get(&process->refs);
	if (!queue_work(system_long_wq, &process->reap_work))
		vgpu_process_put(process); /* not the last one: the watch's process lives */
}

/* The address space ends. Its thread must not wait for the host, so a worker does. */
static void notifier_release(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	struct vgpu_process *process = container_of(notifier, struct vgpu_process, notifier);

	kref_get(&process->refs);
	if (!queue_work(system_long_wq, &process->end_work))
		vgpu_process_put(process);
}

static const struct mmu_notifier_ops notifier_operations = {
	.release = notifier_release,
};

static int ask_nice(struct vgpu_process *process, long limit)
{
	struct vgpu_request *request;
	int error;

	request = vgpu_request_new(VGPU_CTL_PRIORITY, process->id, sizeof(request->body.priority));
	if (!request)
		return -ENOMEM;
	request->body.priority.nice = cpu_to_le32((u32)process->nice);
	error = vgpu_request_submit(process->device, request, false);
	if (!error)
		error = vgpu_request_wait(process->device, request, false, limit);
	vgpu_request_put(request);
	return error;
}

void vgpu_process_tell_nice(struct vgpu_process *process)
{
	if (process->mm && process->nice)
		ask_nice(process, VGPU_END_TIMEOUT);
}

/* The main thread's counts, as in direct mode. False: it has ended. */
static bool look_at_nice(struct vgpu_process *process)
{
	struct task_struct *task = get_pid_task(process->pid, PIDTYPE_TGID);
	int nice;

	if (!task)
		return false;
	nice = task_nice(task);
	put_task_struct(task);
	if (nice == process->nice)
		return true;
	process->nice = nice;
	/* One that is away is told when it comes back. */
	if (!vgpu_process_away(process) && vgpu_device_usable(process->device))
		ask_nice(process, VGPU_END_TIMEOUT);
	return true;
}

static void nice_work(struct work_struct *work)
{
	struct vgpu_process *process = container_of(to_delayed_work(work), struct vgpu_process, nice_work);

	mutex_lock(&process->lock);
	if (!process->ended && look_at_nice(process))
		queue_delayed_work(system_long_wq, &process->nice_work, VGPU_NICE_INTERVAL);
	mutex_unlock(&process->lock);
}

static struct vgpu_process *process_new(struct vgpu_device *device)
{
	struct vgpu_process *process;

	if (!vgpu_device_usable(device))
		return ERR_PTR(-EIO);
	process = kzalloc(sizeof(*process), GFP_KERNEL_ACCOUNT);
	if (!process)
		return ERR_PTR(-ENOMEM);
	kref_init(&process->refs);
	vgpu_device_get(device);
	process->device = device;
	INIT_WORK(&process->end_work, end_work);
	INIT_WORK(&process->reap_work, reap_work);
	/* An idle processor is not woken for it: who runs nothing submits nothing. */
	INIT_DEFERRABLE_WORK(&process->nice_work, nice_work);
	INIT_LIST_HEAD(&process->limbo);
	mutex_init(&process->lock);
	xa_init_flags(&process->rings, XA_FLAGS_ALLOC);
	xa_init_flags(&process->regions, XA_FLAGS_ALLOC1);
	ida_init(&process->watch_slots);
	init_waitqueue_head(&process->wait);
	init_rwsem(&process->moving);
	return process;
}

struct vgpu_process *vgpu_process_open_kernel(struct vgpu_device *device)
{
	return process_new(device);
}

struct vgpu_process *vgpu_process_open(struct vgpu_device *device)
{
	struct vgpu_process *process;
	int error;

	if (!current->mm)
		return ERR_PTR(-EINVAL);
	process = process_new(device);
	if (IS_ERR(process))
		return process;
	process->mm = current->mm;
	mmgrab(process->mm);
	process->notifier.ops = &notifier_operations;
	process->watch_page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	error = process->watch_page ? mmu_notifier_register(&process->notifier, current->mm) : -ENOMEM;
	if (error) {
		vgpu_process_put(process);
		return ERR_PTR(error);
	}
	return process;
}

/* 0, or why this process cannot use the device. */
int vgpu_process_usable(struct vgpu_process *process)
{
	if (!smp_load_acquire(&process->ready))
		return -ENOTCONN;
	if (READ_ONCE(process->lost) || vgpu_process_away(process) || !vgpu_device_usable(process->device))
		return -EPIPE;
	return 0;
}

/* There is nothing to wait for any more. */
static bool is_over(struct vgpu_process *process)
{
	return READ_ONCE(process->lost) || (!vgpu_process_away(process) && !vgpu_device_usable(process->device));
}

static int announce(struct vgpu_process *process, u32 id, struct vgpu_ioc_hello *hello)
{
	struct vgpu_request *request;
	struct vgpu_ctl_create_process *create;
	char comm[TASK_COMM_LEN];
	int error;

	request = vgpu_request_new(VGPU_CTL_CREATE_PROCESS, id, sizeof(*create));
	if (!request)
		return -ENOMEM;
	create = &request->body.create;
	create->schema = hello->schema;
	if (process->mm) {
		create->pid = cpu_to_le32(task_tgid_nr(current));
		create->uid = cpu_to_le32(from_kuid(&init_user_ns, current_uid()));
		get_task_comm(comm, current);
		memcpy(create->comm, comm, sizeof(create->comm));
	} else {
		strscpy(create->comm, "kernel", sizeof(create->comm));
	}
	process->who = *create;
	error = vgpu_request_send(process->device, request, &process->announced);
	if (!error) {
		process->host_schema = request->reply.schema;
		process->window_base = le64_to_cpu(request->reply.value);
		memcpy(process->key, request->reply.message, sizeof(process->key));
	}
	if (!error || error == -EPROTO) {
		hello->host_schema = request->reply.schema;
		hello->window_base = error ? 0 : le64_to_cpu(request->reply.value);
	}
	vgpu_request_put(request);
	return error;
}

/* A client of the kernel's own has no nice value. */
static void watch_nice(struct vgpu_process *process)
{
	if (!process->mm)
		return;
	process->pid = get_task_pid(current, PIDTYPE_TGID);
	process->nice = task_nice(current->group_leader);
	vgpu_process_tell_nice(process);
	queue_delayed_work(system_long_wq, &process->nice_work, VGPU_NICE_INTERVAL);
}

int vgpu_process_hello(struct vgpu_process *process, struct vgpu_ioc_hello *hello)
{
	struct vgpu_device *device = process->device;
	u32 id;
	int error;

	mutex_lock(&process->lock);
	if (process->id || process->announced || process->ended) {
		error = -EALREADY;
		goto out;
	}
	if (!vgpu_device_usable(device)) {
		error = -EPIPE;
		goto out;
	}
	error = xa_alloc_cyclic_irq(&device->processes, &id, process, XA_LIMIT(1, INT_MAX), &device->next_process,
				    GFP_KERNEL);
	if (error < 0)
		goto out;
	process->id = id;
	error = announce(process, id, hello);
	if (error && !process->announced) {
		process->id = 0;
		xa_erase_irq(&device->processes, id);
	} else if (error) {
		WRITE_ONCE(process->lost, true);
	} else {
		smp_store_release(&process->ready, true);
		watch_nice(process);
	}
out:
	mutex_unlock(&process->lock);
	return error;
}

/* The host's answer is not awaited: a process that was lost is told so by an event. */
int vgpu_process_kick(struct vgpu_process *process)
{
	struct vgpu_request *request;
	int error = vgpu_process_usable(process);

	/* Whoever takes the ring over looks at it. */
	if (error == -EPIPE && vgpu_process_away(process))
		return 0;
	if (error)
		return error;
	request = vgpu_request_new(VGPU_CTL_KICK, process->id, sizeof(request->body.header));
	if (!request)
		return -ENOMEM;
	error = vgpu_request_submit(process->device, request, true);
	vgpu_request_put(request);
	return error;
}

int vgpu_process_wait(struct vgpu_process *process, struct vgpu_ioc_wait *wait)
{
	const u64 seen = wait->seen;
	long left;

	if (!smp_load_acquire(&process->ready))
		return -ENOTCONN;
	left = wait_event_interruptible_timeout(process->wait,
						is_over(process) || (u64)atomic64_read(&process->events) != seen,
						msecs_to_jiffies(wait->timeout_ms));
	wait->seen = atomic64_read(&process->events);
	if (is_over(process))
		return -EPIPE;
	if (wait->seen != seen)
		return 0;
	return left < 0 ? -EINTR : -ETIMEDOUT;
}

/* Called with interrupts off. */
void vgpu_process_event(struct vgpu_device *device, u32 id, u32 type)
{
	struct vgpu_process *process;
	unsigned long flags;

	xa_lock_irqsave(&device->processes, flags);
	process = xa_load(&device->processes, id);
	if (process) {
		if (type == VGPU_EVENT_PROCESS_LOST)
			WRITE_ONCE(process->lost, true);
		atomic64_inc(&process->events);
		wake_up_all(&process->wait);
	}
	xa_unlock_irqrestore(&device->processes, flags);
}

/* The host touches none of them any more. */
void vgpu_process_free_pages(struct vgpu_process *process)
{
	struct vgpu_ring *ring;
	struct vgpu_region *region;
	unsigned long id;

	xa_for_each(&process->rings, id, ring)
		vgpu_ring_free(process, ring);
	xa_for_each(&process->regions, id, region)
		vgpu_region_free(process, region);
	xa_destroy(&process->rings);
	xa_destroy(&process->regions);
}

/* Whatever becomes of the pages: the address space may outlive this module. */
static void end_watches(struct vgpu_process *process)
{
	struct vgpu_region *region;
	unsigned long id;

	xa_for_each(&process->regions, id, region) {
		vgpu_watch_end(region->watch);
		region->watch = NULL;
	}
}

/* True when the host has let go of all pages. */
static bool dismiss(struct vgpu_process *process)
{
	struct vgpu_device *device = process->device;
	struct vgpu_request *request;
	bool answered = false;
	int error = -ENOMEM;

	request = vgpu_request_new(VGPU_CTL_DESTROY_PROCESS, process->id, sizeof(request->body.header));
	if (request) {
		error = vgpu_request_submit(device, request, false);
		if (!error)
			error = vgpu_request_wait(device, request, false, VGPU_END_TIMEOUT);
		answered = completion_done(&request->done) && request->answered;
		vgpu_request_put(request);
	}
	if (answered)
		return true;
	/* While remove is at work, its reset decides. */
	if (READ_ONCE(device->gone) && wait_for_completion_timeout(&device->removed, VGPU_END_TIMEOUT))
		return device->quiet;
	if (error == -ETIMEDOUT)
		vgpu_device_break(device, "the session does not end a process");
	return false;
}

static void into_limbo(struct vgpu_process *process)
{
	struct vgpu_device *device = process->device;

	pr_warn_ratelimited("%s: the host did not confirm the end of process %u; its memory stays pinned\n",
			    device->name, process->id);
	kref_get(&process->refs);
	spin_lock(&device->limbo_lock);
	list_add_tail(&process->limbo, &device->limbo);
	spin_unlock(&device->limbo_lock);
}

void vgpu_process_end(struct vgpu_process *process)
{
	struct vgpu_device *device = process->device;
	bool confirmed = true;

	mutex_lock(&process->lock);
	if (process->ended)
		goto out;
	process->ended = true;
	WRITE_ONCE(process->lost, true);
	end_watches(process);
	vgpu_process_end_away(process);
	if (process->announced)
		confirmed = dismiss(process);
	if (confirmed)
		vgpu_process_free_pages(process);
	else
		into_limbo(process);
	/* An id that the host may still know is not given to anyone else. */
	if (process->id && confirmed)
		xa_erase_irq(&device->processes, process->id);
	else if (process->id)
		xa_store_irq(&device->processes, process->id, XA_ZERO_ENTRY, GFP_KERNEL);
out:
	mutex_unlock(&process->lock);
}

void vgpu_process_close(struct vgpu_process *process)
{
	vgpu_process_end(process);
	if (process->mm)
		mmu_notifier_unregister(&process->notifier, process->mm);
	/* The workers run this module's code, and the file's hold on the module ends here. */
	cancel_delayed_work_sync(&process->nice_work);
	flush_work(&process->end_work);
	flush_work(&process->reap_work);
	vgpu_process_put(process);
}
