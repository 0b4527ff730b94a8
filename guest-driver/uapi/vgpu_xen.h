/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 */
/*
 * The virtual GPU as a Xen device: what the frontend (guest-driver/kernel) and the backend (hypervisor/xen) share.
 *
 * Xenstore, the backend's folder: `name` (of the virtual GPU), `abi-version`. The frontend's: `abi-version`,
 * `event-channel`, `ring-ref0` to `ring-ref4`. States (enum xenbus_state): the backend offers (InitWait), the frontend
 * makes its ring (Initialised), the backend maps it (Connected), the frontend goes on (Connected). Either side ends
 * with Closing. The backend says Closed when it has let go of all pages; after InitWait all begins anew.
 *
 * The ring is five granted pages: indices, requests, replies (two), events. Indices count what was ever put there;
 * an entry's place is its index modulo the number of places. Whoever has put something there notifies the event
 * channel.
 */
#ifndef VGPU_XEN_H
#define VGPU_XEN_H

#include "vgpu_control.h"

#define VGPU_XEN_DEVICE "vgpu" /* the device type in xenstore */
#define VGPU_XEN_PAGE_BYTES 4096u
#define VGPU_XEN_RING_PAGES 5
#define VGPU_XEN_SLOTS 32u   /* requests without an answer at a time */
#define VGPU_XEN_EVENTS 512u /* events that the frontend has not taken yet */
#define VGPU_XEN_BODY_BYTES 112
#define VGPU_XEN_REFS_PER_PAGE (VGPU_XEN_PAGE_BYTES / 4)
#define VGPU_XEN_PAGES_MAX 32768u /* of one ring or region */

struct vgpu_xen_indices {
	__le32 requests;     /* written by the frontend */
	__le32 replies;      /* by the backend */
	__le32 events;       /* by the backend */
	__le32 events_taken; /* by the frontend */
};

/*
 * ADD_RING and ADD_REGION name their pages by grants and have no segments. Up to VGPU_XEN_REFS_PER_PAGE of them, the
 * granted page `list` holds the grants (__le32); for more it holds the grants of pages that do.
 */
struct vgpu_xen_request {
	__le32 tag;   /* comes back with the reply; the frontend's own affair */
	__le32 bytes; /* of `body` */
	__le32 list;
	__le32 pages; /* 0: this request names no memory */
	__u8 body[VGPU_XEN_BODY_BYTES]; /* as in vgpu_control.h */
};

struct vgpu_xen_reply {
	__le32 tag;
	__le32 reserved;
	struct vgpu_ctl_reply reply;
	__u8 padding[80];
};

struct vgpu_xen_ring {
	struct vgpu_xen_indices indices;
	__u8 padding[VGPU_XEN_PAGE_BYTES - sizeof(struct vgpu_xen_indices)];
	struct vgpu_xen_request requests[VGPU_XEN_SLOTS];
	struct vgpu_xen_reply replies[VGPU_XEN_SLOTS];
	struct vgpu_event events[VGPU_XEN_EVENTS];
};

#endif
