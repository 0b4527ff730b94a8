// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes that outlive their device. When it is unplugged, and all that a process had is in a file on the host, the
 * process stays: its rings and pinned pages, the open file, the number of /dev/vgpuN. Its calls wait. When a device of the
 * same virtual GPU's name is plugged in, on this host or on another one, that takes the old one's place, and is told
 * what each process has; what these had then comes back from the file.
 *
 * `process->moving`: requests about rings and pages hold it for reading, so that none of them, sent to the old device,
 * meets the new one.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/sched/signal.h>

#include "vgpu.h"

#define RETURN_PAUSE HZ /* between two attempts */

static DEFINE_MUTEX(lock); /* of `parked` and of each device's `kept`; inside process->lock */
static LIST_HEAD(parked);

static void count(struct vgpu_device *device, int more)
{
	bool end;

	mutex_lock(&lock);
	device->kept += more;
	end = !device->kept && device->parked;
	if (end) {
		device->parked = false;
		list_del(&device->parked_list);
	}
	mutex_unlock(&lock);
	/* The process that has ended holds the device still. */
	if (end)
		vgpu_device_discard(device);
}

bool vgpu_device_park(struct vgpu_device *device)
{
	bool kept;

	mutex_lock(&lock);
	kept = device->kept;
	if (kept) {
		device->parked = true;
		list_add_tail(&device->parked_list, &parked);
		pr_info("%s: it is gone; %u processes wait for another one of virtual GPU '%s'\n", device->name,
			device->kept, device->vgpu);
	}
	mutex_unlock(&lock);
	/* Its last process may have ended since, and discarded it. */
	return kept;
}

struct vgpu_device *vgpu_device_unpark(const char *vgpu)
{
	struct vgpu_device *device, *found = NULL;

	mutex_lock(&lock);
	list_for_each_entry(device, &parked, parked_list) {
		if (!strcmp(device->vgpu, vgpu)) {
			found = device;
			list_del(&device->parked_list);
			device->parked = false;
			break;
		}
	}
	mutex_unlock(&lock);
	return found;
}

/* The next one from `*id` on, held; NULL: there is none. */
static struct vgpu_process *next_process(struct vgpu_device *device, unsigned long *id)
{
	struct vgpu_process *process;
	unsigned long flags;

	xa_lock_irqsave(&device->processes, flags);
	process = xa_find(&device->processes, id, ULONG_MAX, XA_PRESENT);
	if (process)
		kref_get(&process->refs);
	xa_unlock_irqrestore(&device->processes, flags);
	return process;
}

/* Asks about the process; 0 or an errno, the host's among them. */
static int ask(struct vgpu_process *process, u32 type)
{
	struct vgpu_request *request = vgpu_request_new(type, process->id, sizeof(request->body.header));
	int error;

	if (!request)
		return -ENOMEM;
	error = vgpu_request_submit(process->device, request, false);
	if (!error)
		error = vgpu_request_wait(process->device, request, false, VGPU_END_TIMEOUT);
	vgpu_request_put(request);
	return error;
}

static bool has_key(const struct vgpu_process *process)
{
	return memchr_inv(process->key, 0, sizeof(process->key));
}

/*
 * Without process->lock: who holds that may wait for the host, which answers once the process has left. A process that
 * ends meanwhile is unknown to the host then, which it is told.
 */
static void leave(struct vgpu_process *process)
{
	int error;

	if (!smp_load_acquire(&process->ready) || READ_ONCE(process->lost) || !process->mm || !has_key(process))
		return;
	if (cmpxchg(&process->away, VGPU_HERE, VGPU_LEAVING) != VGPU_HERE)
		return;
	error = ask(process, VGPU_CTL_LEAVE_PROCESS);
	mutex_lock(&process->lock);
	if (!error && !process->ended) {
		WRITE_ONCE(process->away, VGPU_AWAY);
		process->announced = false;
		count(process->device, 1);
	} else {
		WRITE_ONCE(process->away, VGPU_HERE);
	}
	mutex_unlock(&process->lock);
	wake_up_all(&process->wait);
}

void vgpu_device_leave(struct vgpu_device *device)
{
	struct vgpu_process *process;
	unsigned long id;

	cancel_delayed_work_sync(&device->return_work);
	for (id = 0; (process = next_process(device, &id)); id++) {
		leave(process);
		vgpu_process_put(process);
	}
}

void vgpu_device_lose(struct vgpu_device *device)
{
	struct vgpu_process *process;
	unsigned long id;

	for (id = 0; (process = next_process(device, &id)); id++) {
		mutex_lock(&process->lock);
		if (process->away != VGPU_AWAY) {
			WRITE_ONCE(process->lost, true);
			process->announced = process->announced && !device->quiet;
		}
		mutex_unlock(&process->lock);
		vgpu_process_put(process);
	}
}

void vgpu_process_end_away(struct vgpu_process *process)
{
	if (process->away != VGPU_AWAY)
		return;
	WRITE_ONCE(process->away, VGPU_HERE);
	count(process->device, -1);
}

static int say_return(struct vgpu_process *process)
{
	struct vgpu_ctl_return_process *body;
	struct vgpu_request *request = vgpu_request_new(VGPU_CTL_RETURN_PROCESS, process->id, sizeof(*body));
	int error;

	if (!request)
		return -ENOMEM;
	body = &request->body.back;
	body->create.schema = process->who.schema;
	body->create.pid = process->who.pid;
	body->create.uid = process->who.uid;
	memcpy(body->create.comm, process->who.comm, sizeof(body->create.comm));
	memcpy(body->key, process->key, sizeof(body->key));
	body->window_base = cpu_to_le64(process->window_base);
	error = vgpu_request_send(process->device, request, &process->announced);
	/* Another release numbers its calls in another way, and the program has learnt the old ones. */
	if (!error && memcmp(&request->reply.schema, &process->host_schema, sizeof(process->host_schema)))
		error = -EPROTO;
	if (!error && le64_to_cpu(request->reply.value) != process->window_base)
		error = -EPROTO;
	vgpu_request_put(request);
	return error;
}

static int say_all(struct vgpu_process *process)
{
	struct vgpu_region *region;
	struct vgpu_ring *ring;
	unsigned long id;
	bool maybe_done;
	int error = say_return(process);

	if (!error)
		vgpu_process_tell_nice(process);
	xa_for_each(&process->rings, id, ring) {
		if (!error)
			error = vgpu_ring_announce(process, ring, id, &maybe_done);
	}
	xa_for_each(&process->regions, id, region) {
		if (!error)
			error = vgpu_region_announce(process, region, id, &maybe_done);
	}
	return error ?: ask(process, VGPU_CTL_ALL_ANNOUNCED);
}

/* False: not yet. */
static bool come_back(struct vgpu_process *process)
{
	bool here = true;
	int error = 0;

	down_write(&process->moving);
	mutex_lock(&process->lock);
	if (!process->ended && process->away == VGPU_AWAY) {
		error = say_all(process);
		here = !error;
		if (here) {
			count(process->device, -1);
			/* With it what is written above: the next request must not be refused as of a stranger. */
			WRITE_ONCE(process->returns, process->returns + 1);
			smp_store_release(&process->away, VGPU_HERE);
			/* What was unmapped meanwhile. */
			vgpu_process_reap(process);
		} else if (process->announced && !ask(process, VGPU_CTL_LEAVE_PROCESS)) {
			process->announced = false;
		}
		if (error && error != process->return_error)
			pr_warn("%s: process %u cannot come back yet: error %d\n", process->device->name, process->id,
				-error);
		process->return_error = error;
	}
	mutex_unlock(&process->lock);
	up_write(&process->moving);
	wake_up_all(&process->wait);
	return here;
}

static void return_work(struct work_struct *work)
{
	struct vgpu_device *device = container_of(work, struct vgpu_device, return_work.work);
	struct vgpu_process *process;
	unsigned long id;
	bool all = true;

	for (id = 0; (process = next_process(device, &id)); id++) {
		all = come_back(process) && all;
		vgpu_process_put(process);
	}
	if (!all && vgpu_device_usable(device))
		queue_delayed_work(system_long_wq, &device->return_work, RETURN_PAUSE);
}

void vgpu_device_init_away(struct vgpu_device *device)
{
	INIT_DELAYED_WORK(&device->return_work, return_work);
}

void vgpu_device_take_back(struct vgpu_device *device)
{
	queue_delayed_work(system_long_wq, &device->return_work, 0);
}

int vgpu_process_lock_here(struct vgpu_process *process)
{
	return down_read_killable(&process->moving);
}

void vgpu_process_unlock_here(struct vgpu_process *process)
{
	up_read(&process->moving);
}

bool vgpu_process_await_return(struct vgpu_process *process, u32 returns)
{
	if (!vgpu_process_away(process) && READ_ONCE(process->returns) == returns)
		return false;
	return !wait_event_killable(process->wait, !vgpu_process_away(process) || READ_ONCE(process->lost)) &&
	       !vgpu_process_usable(process);
}
