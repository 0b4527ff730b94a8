/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 */
/*
 * Control requests: what creates and ends guest processes, command rings and memory regions.
 *
 * Two carriers, one meaning. In a VM the kernel module puts a request into the control virtqueue
 * (device-readable: request, then segments; device-writable: struct vgpu_ctl_reply). In direct mode the
 * client sends the same bytes as one SOCK_SEQPACKET message and gets a reply message back. Only the kernel
 * module (or the client itself, about its own arena) can name memory: a guest process that forges ring
 * records can reach nothing that was not pinned for it.
 *
 * Segments are guest-physical ranges in a VM and offsets into the arena memfd in direct mode, or into a file in memory
 * (tmpfs) that a client sends along, where the program shares such a file with others.
 */
#ifndef VGPU_CONTROL_H
#define VGPU_CONTROL_H

#include <linux/types.h>

#define VGPU_VIRTIO_ID 63
#define VGPU_ABI_VERSION 1

/*
 * What a library or a host was built from. Equal: the same calls under the same opcodes. Else the library asks the
 * host for its calls (the call `call_ids`), if their releases fit: see protocol.md, "Versions".
 */
struct vgpu_schema {
	__le16 major, minor, patch; /* of the release */
	__le16 part;                /* with CREATE_PROCESS: of the address window, see below; else 0 */
	__u8 hash[24];              /* over all calls and the structures of vgpu_wire.h */
};

/* Virtqueues. */
#define VGPU_QUEUE_CONTROL 0
#define VGPU_QUEUE_EVENT 1
#define VGPU_QUEUE_COUNT 2

/* Device configuration space. */
struct vgpu_virtio_config {
	__le32 abi_version;
	__le32 max_processes;
	struct vgpu_schema schema;
	__u8 name[64]; /* the virtual GPU's name, NUL padded */
};

/*
 * The address window: one range of addresses that guest process and runner both keep free, so that one
 * pointer is right on both sides. Guest-chosen memory (pinned host, managed, rings of direct mode) lies at its
 * beginning. Behind that come the parts for device memory. A guest process that uses several virtual GPUs has a
 * runner of each, all with the same window, and asks each for another part (schema.part of CREATE_PROCESS; the reply
 * repeats it, a host that knows of one part only replies 0). The runner tries the bases in this order, but for those
 * where something of the guest process lies already: their bits stand above the part (bit 0: of BASE_0).
 */
#define VGPU_WINDOW_DEVICE_OFFSET (1ull << 39)
#define VGPU_WINDOW_PART_BYTES (1ull << 39)
#define VGPU_WINDOW_PARTS 16u
#define VGPU_WINDOW_BYTES (VGPU_WINDOW_DEVICE_OFFSET + VGPU_WINDOW_PARTS * VGPU_WINDOW_PART_BYTES)
#define VGPU_WINDOW_BASE_0 0x200000000000ull
#define VGPU_WINDOW_BASE_1 0x300000000000ull
#define VGPU_WINDOW_BASE_2 0x600000000000ull
#define VGPU_WINDOW_PART_MASK 0xffu
#define VGPU_WINDOW_TAKEN_SHIFT 8
#define VGPU_WINDOW_TAKEN_MASK 7u

enum vgpu_ctl_type {
	VGPU_CTL_CREATE_PROCESS = 1, /* struct vgpu_ctl_create_process; reply.value = window base */
	VGPU_CTL_DESTROY_PROCESS = 2,/* struct vgpu_ctl_header; the reply says that no page is touched any more */
	VGPU_CTL_ADD_RING = 3,       /* struct vgpu_ctl_add_region, id = ring id */
	VGPU_CTL_DROP_RING = 4,      /* struct vgpu_ctl_drop */
	VGPU_CTL_ADD_REGION = 5,     /* struct vgpu_ctl_add_region */
	VGPU_CTL_DROP_REGION = 6,    /* struct vgpu_ctl_drop; waits until nothing uses the region */
	VGPU_CTL_KICK = 7,           /* struct vgpu_ctl_header: the runner sleeps and a ring has a record */
	VGPU_CTL_PING = 8,           /* struct vgpu_ctl_header; process 0 asks the session itself */
	VGPU_CTL_QUERY = 9,          /* struct vgpu_ctl_query; process 0: the session answers, without a runner */
	VGPU_CTL_PRIORITY = 10,      /* struct vgpu_ctl_priority; sessions of earlier releases refuse it */
	VGPU_CTL_RETURN_PROCESS = 11,/* struct vgpu_ctl_return_process; answered as CREATE_PROCESS */
	VGPU_CTL_ALL_ANNOUNCED = 12, /* struct vgpu_ctl_header: of one that has come back, its rings and regions */
	VGPU_CTL_LEAVE_PROCESS = 13 /* struct vgpu_ctl_header: the device goes, and the process means to come back */
};

struct vgpu_ctl_header {
	__le32 type;
	__le32 process; /* chosen by the kernel module; unique among the living; 1 in direct mode */
};

struct vgpu_ctl_create_process {
	struct vgpu_ctl_header header;
	struct vgpu_schema schema; /* of the libcuda.so.1 that asks */
	__le32 pid; /* for people: logs and usage */
	__le32 uid;
	__u8 comm[16];
};

#define VGPU_RETURN_KEY_BYTES 16

/*
 * A process whose session has ended while all that it had was in a file comes to another session: its rings and regions
 * follow, then ALL_ANNOUNCED; its calls wait until the file is restored. Whoever says the key gets what the process had.
 */
struct vgpu_ctl_return_process {
	struct vgpu_ctl_create_process create;
	__u8 key[VGPU_RETURN_KEY_BYTES]; /* of the reply to its CREATE_PROCESS */
	__le64 window_base; /* of the same */
};

/*
 * LEAVE_PROCESS: status 0 says that all that the process had is in a file, that nothing on the host touches its pages any
 * more, and that the session does not know it from now on; RETURN_PROCESS brings it to the same session or to another one.
 * Any other status: it stays, and ends with its device (EBUSY: it is in no file; EINVAL: an earlier release).
 */

/* Whose time slices go first among the processes of one virtual GPU: as nice values, -20 (first) to 19. */
struct vgpu_ctl_priority {
	struct vgpu_ctl_header header;
	__le32 nice; /* two's complement */
	__le32 reserved;
};

struct vgpu_segment {
	__le64 address;
	__le64 bytes;
};

#define VGPU_SEGMENTS_MAX 65536u

/* Bits of vgpu_ctl_add_region.flags. */
#define VGPU_REGION_DEVICE_VISIBLE 1u /* kernels may use it; if it lies in the window, at its own address */
#define VGPU_REGION_READ_ONLY 2u /* the host must not write (a copy's source in read-only pages) */
#define VGPU_REGION_OF_FILE 4u /* direct mode: segments are offsets in the file that comes along */

struct vgpu_ctl_add_region {
	struct vgpu_ctl_header header;
	__le32 id; /* rings and regions are numbered apart; chosen by the asker */
	__le32 flags;
	__le64 va; /* address in the guest process of the first byte */
	__le64 bytes; /* sum of the segments' lengths; segments of regions are whole pages */
	__le32 segments;
	__le32 reserved;
	/* struct vgpu_segment[segments] follows */
};

struct vgpu_ctl_drop {
	struct vgpu_ctl_header header;
	__le32 id;
	__le32 reserved;
};

struct vgpu_ctl_query {
	struct vgpu_ctl_header header;
	__le32 what; /* enum vgpu_query_what */
	__le32 index; /* of a process; else 0 */
};

#define VGPU_ANSWER_BYTES 120

struct vgpu_ctl_reply {
	__le32 status; /* 0 or a Linux errno: EPROTO: the releases do not fit */
	__le32 reserved;
	__le64 value;
	struct vgpu_schema schema; /* the host's, with CREATE_PROCESS */
	char message[VGPU_ANSWER_BYTES]; /* NUL terminated, for the guest's log; with QUERY and status 0 the answer */
};

/*
 * With CREATE_PROCESS and status 0 `message` begins with the process's return key (VGPU_RETURN_KEY_BYTES), which nobody
 * else is to know. Zeros: this process cannot come back, or the host is of an earlier release.
 */

/*
 * What a virtual GPU says of itself to those who watch it (NVML): it alone, none of its neighbours. An answer grows
 * at its end: what an older host does not know is 0. EAGAIN: not known yet, because no runner has been ready; EINVAL:
 * this host does not know the question.
 */
enum vgpu_query_what {
	VGPU_QUERY_DEVICE = 1, /* struct vgpu_answer_device */
	VGPU_QUERY_USAGE = 2, /* struct vgpu_answer_usage */
	VGPU_QUERY_PROCESS = 3, /* struct vgpu_answer_process; ENOENT: fewer are running */
	VGPU_QUERY_SENSORS = 4, /* struct vgpu_answer_sensors */
	VGPU_QUERY_LINKS = 5 /* struct vgpu_answer_links */
};

struct vgpu_answer_device {
	char name[64]; /* NUL terminated */
	__u8 uuid[16];
	__le32 pci_domain, pci_bus, pci_device;
	__le32 capability_major, capability_minor;
	__le32 cuda_version; /* as cuDriverGetVersion */
	__le32 sms;
	__le32 memory_bus_bits;
	__le32 hardware; /* 1: an NVIDIA GPU; 0: the software device */
	__le32 reserved;
};

/* Shares of time are of the last whole second, in percent of one engine's time. */
struct vgpu_answer_usage {
	__le64 memory_total, memory_used; /* bytes: the virtual GPU's share, and what is taken of it */
	__le64 time_us; /* when the second ended, since the epoch */
	__le64 bytes_in, bytes_out; /* copied in that second */
	__le32 compute_percent, copy_percent;
	__le32 processes;
	__le32 reserved;
};

struct vgpu_answer_process {
	__le64 memory_used; /* bytes */
	__le64 time_us; /* as above */
	__le32 pid; /* as the guest's kernel says */
	__le32 compute_percent, copy_percent;
	__le32 reserved;
};

/* Values that the physical GPU measures or is set to; of a software device its link. A bit of `known` for each of `values`. */
enum vgpu_sensor {
	VGPU_SENSOR_TEMPERATURE_C = 0,
	VGPU_SENSOR_TEMPERATURE_SLOWDOWN_C = 1,
	VGPU_SENSOR_TEMPERATURE_SHUTDOWN_C = 2,
	VGPU_SENSOR_POWER_MW = 3,
	VGPU_SENSOR_POWER_LIMIT_MW = 4,
	VGPU_SENSOR_POWER_LIMIT_DEFAULT_MW = 5,
	VGPU_SENSOR_POWER_LIMIT_LEAST_MW = 6,
	VGPU_SENSOR_POWER_LIMIT_MOST_MW = 7,
	VGPU_SENSOR_CLOCK_GRAPHICS_MHZ = 8, /* then SM, memory, video: in the order of nvmlClockType_t */
	VGPU_SENSOR_CLOCK_SM_MHZ = 9,
	VGPU_SENSOR_CLOCK_MEMORY_MHZ = 10,
	VGPU_SENSOR_CLOCK_VIDEO_MHZ = 11,
	VGPU_SENSOR_CLOCK_GRAPHICS_MOST_MHZ = 12,
	VGPU_SENSOR_CLOCK_SM_MOST_MHZ = 13,
	VGPU_SENSOR_CLOCK_MEMORY_MOST_MHZ = 14,
	VGPU_SENSOR_CLOCK_VIDEO_MOST_MHZ = 15,
	VGPU_SENSOR_FAN_PERCENT = 16,
	VGPU_SENSOR_PERFORMANCE_STATE = 17,
	VGPU_SENSOR_CLOCK_REASONS = 18, /* low 32 bits of nvmlClocksEventReason* */
	VGPU_SENSOR_ECC = 19, /* 1: on */
	VGPU_SENSOR_PCIE_GENERATION = 20,
	VGPU_SENSOR_PCIE_WIDTH = 21,
	VGPU_SENSOR_PCIE_GENERATION_MOST = 22,
	VGPU_SENSOR_PCIE_WIDTH_MOST = 23,
	VGPU_SENSOR_BRAND = 24, /* nvmlBrandType_t */
	VGPU_SENSORS_MAX = 28
};

struct vgpu_answer_sensors {
	__le64 known;
	__le32 values[VGPU_SENSORS_MAX];
};

#define VGPU_NVLINKS_MAX 18u
#define VGPU_PEER_GPUS_MAX 15u

/* How kernels reach the memory of other virtual GPUs of this host. A GPU that reaches no other one says no links. */
struct vgpu_answer_links {
	/* Of one GPU, or of the software devices of one host, the same number for all; 0: unknown, or a MIG instance. */
	__le32 physical;
	__le32 active; /* NVLinks that are up: a bit for each */
	__le32 to_switch; /* those of them that end at a switch */
	__le32 version; /* nvmlNvlinkVersion_t */
	__le32 speed_mbps; /* of one link, megabytes a second; 0: unknown */
	__le32 peers[VGPU_PEER_GPUS_MAX]; /* `physical` of other GPUs whose memory this one reaches; then 0 */
	__u8 remotes[VGPU_NVLINKS_MAX]; /* of a link that ends at a GPU: its place in `peers`, from 1 on; else 0 */
	__u8 reserved[2];
};

/* What the session puts into the event virtqueue's buffers. */
enum vgpu_event_type {
	VGPU_EVENT_WAKE = 1, /* a reply or completion for a waiting thread of `process` */
	VGPU_EVENT_PROCESS_LOST = 2 /* its runner died: every wait of `process` ends with EPIPE */
};

struct vgpu_event {
	__le32 type;
	__le32 process;
};

#endif
