/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * virtio_vgpu: what its files share.
 *
 *   driver.c   the device: its begin and its end, whatever bus it is on
 *   virtio.c   the bus virtio: probe, remove, the two queues
 *   xen.c      the bus xenbus: states, ring, event channel
 *   grants.c   pages shared with a Xen backend
 *   control.c  requests
 *   chardev.c  /dev/vgpuN: open, ioctl, mmap, release
 *   process.c  one open file is one guest process: hello, wait, death
 *   client.c   guest processes of the kernel's own
 *   client_ring.c  their records
 *   ring.c     rings: pages shared with the process and the host
 *   region.c   long-term pinned user memory
 *   segments.c page lists for the host, on virtio
 *   watch.c    tells a process when its addresses no longer mean the pages that are pinned
 *   away.c     processes that outlive their device
 *
 * Locks, in this order: process->moving (its device is another), process->lock (tables, state), away.c's,
 * device->control_lock (what carries requests), device->processes' own lock (taken with interrupts off).
 */
#ifndef VGPU_H
#define VGPU_H

#include <linux/completion.h>
#include <linux/idr.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "vgpu_control.h"
#include "vgpu_ioctl.h"
#include "vgpu_ring.h"

#define VGPU_RING_PAGES (VGPU_RING_BYTES / PAGE_SIZE)

/* A request that is not answered for so long makes us ask whether the session lives; it gets as long again. */
#define VGPU_REPLY_TIMEOUT (5 * HZ)
#define VGPU_PING_TIMEOUT (3 * HZ)
/* How long a process's end waits for a session that is alive but does not answer. */
#define VGPU_END_TIMEOUT (30 * HZ)
/* Between two looks at a program's nice value. */
#define VGPU_NICE_INTERVAL (HZ / 5)

struct vgpu_device;
struct vgpu_request;

/* Pages that the other side may map for as long as this lives. */
struct vgpu_shared;

/* What carries requests and events, and how the host reaches pages. */
struct vgpu_bus {
	/* Before a request is put there; may sleep. */
	int (*prepare)(struct vgpu_device *device, struct vgpu_request *request);
	/* Puts it there and notifies; under control_lock. -ENOSPC or -ENOMEM: to be tried again. */
	int (*enqueue)(struct vgpu_device *device, struct vgpu_request *request);
	/* Frees what `prepare` and `share` have added to the request; any context. */
	void (*release)(struct vgpu_request *request);
	/* Makes an ADD_RING or ADD_REGION request name these pages. `*shared` may stay NULL. May sleep. */
	int (*share)(struct vgpu_device *device, struct vgpu_request *request, struct page **pages, unsigned long count,
		     bool read_only, struct vgpu_shared **shared);
	/* May be NULL: what was shared needs no end. */
	void (*unshare)(struct vgpu_shared *shared);
};

struct vgpu_device {
	struct kref refs;
	struct list_head shown;  /* of all that are shown, see vgpu_device_find */
	const struct vgpu_bus *bus;
	void *on_bus;            /* the bus's own; valid until `gone` is set */
	u16 backend_domain;      /* on Xen: who may map what is shared */
	struct miscdevice misc;
	int number;
	char name[16];
	char vgpu[sizeof_field(struct vgpu_virtio_config, name) + 1]; /* the virtual GPU's name; empty: not known */

	spinlock_t control_lock; /* what the bus has in it: submission and completion */
	wait_queue_head_t slots; /* room for requests */
	u32 completions;         /* requests taken back so far */

	bool gone;     /* remove has begun; no request is accepted any more */
	bool broken;   /* the session does not answer; until the driver is reloaded */
	bool quiet;    /* after a reset: the host touches no page of ours */
	struct completion removed; /* remove has decided `quiet` */

	struct xarray processes; /* by id; an id stays taken while the host may know it */
	u32 next_process;
	spinlock_t limbo_lock;
	struct list_head limbo;  /* dead processes whose pages the host may still touch */

	atomic_long_t pinned_pages;

	/* See away.c, whose lock guards these. */
	unsigned int kept;       /* processes that are away */
	bool parked;             /* no bus, and kept for them */
	struct list_head parked_list;
	struct delayed_work return_work;
};

/* A request on its way. Two owners: whoever submitted it and the queue. */
struct vgpu_request {
	refcount_t refs;
	struct completion done;
	bool answered;        /* `reply` is the host's; set before `done` */
	u32 bytes;            /* of `body`, what the host gets first */
	struct page **pages;  /* then these, `tail_bytes` in all */
	unsigned int page_count;
	size_t tail_bytes;
	const struct vgpu_bus *bus;
	void *carried;        /* the bus's own: a list of pieces, or grants */
	union {
		struct vgpu_ctl_header header;
		struct vgpu_ctl_create_process create;
		struct vgpu_ctl_add_region add;
		struct vgpu_ctl_drop drop;
		struct vgpu_ctl_query query;
		struct vgpu_ctl_priority priority;
		struct vgpu_ctl_return_process back;
	} body;
	struct vgpu_ctl_reply reply;
};

struct vgpu_ring {
	struct page *pages[VGPU_RING_PAGES];
	struct vgpu_shared *shared;
};

struct vgpu_region {
	struct page **pages;
	unsigned long count;
	unsigned long pinned; /* of them; fewer only while it is being made, and none of a client's */
	unsigned long owned;  /* of them, of a client's */
	bool writable;
	u64 va;     /* as announced */
	u32 flags;
	struct vgpu_watch *watch; /* or NULL */
	struct vgpu_shared *shared;
};

enum vgpu_away {
	VGPU_HERE,
	VGPU_LEAVING, /* the host is being asked */
	VGPU_AWAY,    /* no host knows it, and none touches its pages */
};

struct vgpu_process {
	struct kref refs;
	struct vgpu_device *device;
	struct mm_struct *mm;           /* whose file this is; NULL: a client of the kernel's own */
	struct mmu_notifier notifier;
	struct work_struct end_work;
	struct pid *pid;                /* of its thread group, from HELLO on */
	struct delayed_work nice_work;  /* tells the host when the program was reniced */
	struct list_head limbo;

	struct mutex lock;
	u32 id;    /* 0: none */
	u64 window_base;
	bool announced;                 /* the host may know `id` */
	bool ready;       /* HELLO succeeded */
	bool ended;
	struct xarray rings;            /* by id */
	struct xarray regions;
	u32 next_region;
	struct page *watch_page;        /* a word for each watched region: its id while it is good */
	struct ida watch_slots;
	struct work_struct reap_work;   /* lets go of watched regions whose addresses were unmapped */

	wait_queue_head_t wait;
	atomic64_t events;
	bool lost;        /* the host side of this process is gone */

	struct rw_semaphore moving;
	enum vgpu_away away;
	struct vgpu_ctl_create_process who; /* as the host was told */
	int nice;
	struct vgpu_schema host_schema;
	u8 key[VGPU_RETURN_KEY_BYTES];      /* zeros: it cannot come back */
	int return_error;                   /* of the last attempt */
	u32 returns;   /* how often it has come back */
};

/* driver.c */
/*
 * Not visible yet. `vgpu`: the virtual GPU's name; a device of that name that has gone and has processes still becomes this
 * one. NULL: no memory. Ends with vgpu_device_discard, or with vgpu_device_hide and vgpu_device_finish.
 */
struct vgpu_device *vgpu_device_new(struct device *parent, const struct vgpu_bus *bus, void *on_bus, const char *vgpu);
void vgpu_device_discard(struct vgpu_device *device);
/* Makes /dev/vgpuN; requests may be sent from then on. `name`: of the virtual GPU, for the log. */
int vgpu_device_show(struct vgpu_device *device, const char *name);
/* Nobody opens it any more, and the bus is not asked again. */
void vgpu_device_hide(struct vgpu_device *device);
/* The bus is gone. `quiet`: the host touches no page of ours, or has what it touches by references of its own. */
void vgpu_device_finish(struct vgpu_device *device, bool quiet);
void vgpu_device_get(struct vgpu_device *device);
void vgpu_device_put(struct vgpu_device *device);
/* Nothing more can be asked of the session. Wakes everyone who waits. */
void vgpu_device_break(struct vgpu_device *device, const char *why);
bool vgpu_device_usable(struct vgpu_device *device);
/* The first one that is usable, held; NULL: there is none. */
struct vgpu_device *vgpu_device_find(void);

/* Whatever the bus: see struct vgpu_bus. */
static inline int vgpu_share(struct vgpu_device *device, struct vgpu_request *request, struct page **pages,
			     unsigned long count, bool read_only, struct vgpu_shared **shared)
{
	return device->bus->share(device, request, pages, count, read_only, shared);
}

static inline void vgpu_unshare(struct vgpu_device *device, struct vgpu_shared *shared)
{
	if (shared && device->bus->unshare)
		device->bus->unshare(shared);
}

/* control.c */
struct vgpu_request *vgpu_request_new(u32 type, u32 process, u32 bytes);
void vgpu_request_put(struct vgpu_request *request);
/* Puts it into the queue; -EPIPE when the device is unusable. May sleep for room, -EINTR when `killable`. */
int vgpu_request_submit(struct vgpu_device *device, struct vgpu_request *request, bool killable);
/*
 * Waits for the answer while the session is alive (asked every VGPU_REPLY_TIMEOUT). Returns 0 or the host's
 * errno when it has answered; else `answered` is false and the result -EPIPE (there will be no answer),
 * -EINTR (`killable`, and the task is being killed) or -ETIMEDOUT (after `limit` jiffies; 0: no limit).
 */
int vgpu_request_wait(struct vgpu_device *device, struct vgpu_request *request, bool killable, long limit);
/* Both; killable, without limit. `*maybe_done` is set when the host may have carried it out. */
int vgpu_request_send(struct vgpu_device *device, struct vgpu_request *request, bool *maybe_done);
int vgpu_ping(struct vgpu_device *device, u32 process, long timeout);
/* What the session says of the virtual GPU itself. */
int vgpu_query(struct vgpu_device *device, struct vgpu_ioc_query *query);
/* For the bus, under control_lock: the request has come back. */
void vgpu_request_complete(struct vgpu_request *request, bool answered);
/* For the bus: some requests have come back, there may be room for others. */
void vgpu_requests_completed(struct vgpu_device *device);

/* segments.c */
/* `count` pages of zeroes behind the request, which has none yet; freed with it. */
int vgpu_request_add_pages(struct vgpu_request *request, unsigned long count);
/* Appends the merged physical ranges of `count` pages to an ADD_RING or ADD_REGION request. */
int vgpu_segments_add(struct vgpu_request *request, struct page **pages, unsigned long count);

/* virtio.c */
int vgpu_virtio_register(void);
void vgpu_virtio_unregister(void);

/* xen.c; without Xen's bus in the kernel both do nothing. */
int vgpu_xen_register(void);
void vgpu_xen_unregister(void);

/* process.c */
struct vgpu_process *vgpu_process_open(struct vgpu_device *device);
/* Of nobody's address space. */
struct vgpu_process *vgpu_process_open_kernel(struct vgpu_device *device);
void vgpu_process_put(struct vgpu_process *process);
/* The file's or the client's end: ends the process too. */
void vgpu_process_close(struct vgpu_process *process);
/* Tells the host and frees everything; waits, bounded. Idempotent. */
void vgpu_process_end(struct vgpu_process *process);
int vgpu_process_usable(struct vgpu_process *process);
int vgpu_process_hello(struct vgpu_process *process, struct vgpu_ioc_hello *hello);
int vgpu_process_kick(struct vgpu_process *process);
int vgpu_process_wait(struct vgpu_process *process, struct vgpu_ioc_wait *wait);
void vgpu_process_event(struct vgpu_device *device, u32 id, u32 type);
/* A host that does not know of it refuses it: then all programs are equal. Of a new process it takes 0. */
void vgpu_process_tell_nice(struct vgpu_process *process);
/* Any context; unpins, soon, the regions of which vgpu_watch_unmapped is true. */
void vgpu_process_reap(struct vgpu_process *process);
void vgpu_process_free_pages(struct vgpu_process *process);

/* ring.c */
int vgpu_ring_add(struct vgpu_process *process, struct vgpu_ioc_ring *ioc);
int vgpu_ring_drop(struct vgpu_process *process, u32 id);
int vgpu_ring_map(struct vgpu_process *process, struct vm_area_struct *vma);
void vgpu_ring_free(struct vgpu_process *process, struct vgpu_ring *ring);

int vgpu_ring_announce(struct vgpu_process *process, struct vgpu_ring *ring, u32 id, bool *maybe_done);

/* region.c */
/* `slot`: where the watch's word is; NULL for a region that is not watched. */
int vgpu_region_pin(struct vgpu_process *process, struct vgpu_ioc_region *ioc, u32 *slot);
/* Makes pages of the kernel's own for a client, `ioc->bytes` of them, which the host knows by `ioc->va`. */
int vgpu_region_make(struct vgpu_process *process, struct vgpu_ioc_region *ioc, struct page ***pages);
/* -ETIMEDOUT when the host has not answered after `limit` jiffies (0: no limit); the region then goes with the process. */
int vgpu_region_unpin(struct vgpu_process *process, u32 id, long limit);
void vgpu_region_free(struct vgpu_process *process, struct vgpu_region *region);
int vgpu_region_announce(struct vgpu_process *process, struct vgpu_region *region, u32 id, bool *maybe_done);

/* watch.c */
/* Before the calling task pins the pages; page replacements by this task's own pinning are no change. */
struct vgpu_watch *vgpu_watch_start(struct vgpu_process *process, u64 va, u64 bytes, u32 id);
/* They are pinned now. */
void vgpu_watch_pinned(struct vgpu_watch *watch);
u32 vgpu_watch_slot(struct vgpu_watch *watch);
/* May be NULL. All its addresses were unmapped: nobody can use the region any more. */
bool vgpu_watch_unmapped(struct vgpu_watch *watch);
/* May be NULL. The process is not told of changes any more, and the word says that there was one. */
void vgpu_watch_end(struct vgpu_watch *watch);
int vgpu_watch_map(struct vgpu_process *process, struct vm_area_struct *vma);

/* away.c */
void vgpu_device_init_away(struct vgpu_device *device);
/* It is about to go: processes may leave. Before vgpu_device_hide; the host answers still. */
void vgpu_device_leave(struct vgpu_device *device);
/* It has gone: processes that have not left are lost. */
void vgpu_device_lose(struct vgpu_device *device);
/* Keeps it for its processes that are away; false: there are none. */
bool vgpu_device_park(struct vgpu_device *device);
/* One of this virtual GPU, parked no longer; NULL: there is none. */
struct vgpu_device *vgpu_device_unpark(const char *vgpu);
/* It is shown: its processes that are away come back. */
void vgpu_device_take_back(struct vgpu_device *device);
/* Under process->lock, at its end. */
void vgpu_process_end_away(struct vgpu_process *process);
/* Around requests about rings and pages. -EINTR: the task is being killed. */
int vgpu_process_lock_here(struct vgpu_process *process);
void vgpu_process_unlock_here(struct vgpu_process *process);
/*
 * Of a request that failed with -EPIPE, before which the process had come back so often: true once it is back, and the
 * request can be sent again.
 */
bool vgpu_process_await_return(struct vgpu_process *process, u32 returns);

static inline bool vgpu_process_away(struct vgpu_process *process)
{
	return smp_load_acquire(&process->away) != VGPU_HERE;
}

/* No host knows it any more: what was not answered was not done. */
static inline bool vgpu_process_left(struct vgpu_process *process)
{
	return smp_load_acquire(&process->away) == VGPU_AWAY;
}

/* chardev.c */
extern const struct file_operations vgpu_file_operations;

#endif
