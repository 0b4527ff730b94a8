/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 */
/*
 * Plain structures that travel inside records and replies (named in calls/wire.toml).
 *
 * Handles are 64 bits: (kind << 56) | (generation << 32) | (part << 20) | index, minted by the runner, valid in one
 * guest process only, never 0. The part is that of the address window (vgpu_control.h), so that handles of several
 * virtual GPUs differ. libcuda.so.1 hands them to the program as CUstream, CUevent and so on. Streams may
 * also be 0 (the context's default), 1 (legacy default) and 2 (this thread's default).
 */
#ifndef VGPU_WIRE_H
#define VGPU_WIRE_H

#include <linux/types.h>

#define VGPU_ATTRIBUTES_MAX 256u
#define VGPU_HANDLE_PART_SHIFT 20
#define VGPU_STREAM_LEGACY 1u
#define VGPU_STREAM_PER_THREAD 2u
#define VGPU_INLINE_BYTES_MAX 8192u /* copies up to this travel inside the record or the reply */

struct vgpu_device_info {
	char name[256]; /* of the product, NUL terminated */
	char vgpu[64];  /* the virtual GPU's name, as registered; NUL terminated */
	__u8 uuid[16];  /* the virtual GPU's own, as the bus id among the attributes (PCI_DOMAIN_ID, PCI_BUS_ID) */
	__u64 total_bytes;                      /* the virtual GPU's memory share */
	__s32 attributes[VGPU_ATTRIBUTES_MAX];  /* indexed by CUdevice_attribute */
	__s32 least_priority, greatest_priority;
	__s32 driver_version;                   /* as cuDriverGetVersion */
	__u32 piece_bytes;                      /* how much of a long staged copy best goes into one record */
	__u32 spin_us;     /* how long a waiting thread spins before it sleeps */
	__u32 reserved;
};

struct vgpu_parameter {
	__u32 offset, bytes;
};

/* A kernel or function; vgpu_parameter[parameters] follows it in the reply. */
struct vgpu_function_info {
	__s32 attributes[20]; /* indexed by CUfunction_attribute */
	__u32 parameters;
	__u32 parameter_bytes;
};

struct vgpu_launch {
	__u64 function; /* a function or a kernel */
	__u64 stream;
	__u32 grid[3], block[3], cluster[3];
	__u32 shared_bytes;
	__u32 flags;
	__s32 priority;
	/* Hints, which change no result: CUlaunchAttributeValue has their meanings. */
	__u32 preferred_cluster[3]; /* 0: none */
	__u32 cluster_policy;       /* CUclusterSchedulingPolicy */
	__u32 sync_domain;          /* CUlaunchMemSyncDomain */
	__s32 carveout;             /* with VGPU_LAUNCH_CARVEOUT: preferred shared memory, percent or -1 */
	/* The packed parameters follow as the record's data. */
};
#define VGPU_LAUNCH_COOPERATIVE 1u
#define VGPU_LAUNCH_PROGRAMMATIC 2u /* may overlap the end of the work before it, whose kernels say when */
#define VGPU_LAUNCH_CARVEOUT 4u

/* What one end of a copy is. */
enum vgpu_memory_kind {
	VGPU_MEMORY_DEVICE = 1, /* device or managed memory, or a device-visible region */
	VGPU_MEMORY_HOST = 2,   /* a guest address inside one of the process's regions */
	VGPU_MEMORY_ARRAY = 3   /* a CUDA array: address is its handle, with x, y, z below */
};

struct vgpu_copy_end {
	__u64 address;
	__u64 pitch;   /* bytes from row to row */
	__u64 height;  /* rows from plane to plane */
	__u64 x_bytes, y, z;
	__u32 kind;    /* enum vgpu_memory_kind */
	__u32 reserved;
};

/* Every form of memcpy: 1D is width x 1 x 1. */
struct vgpu_copy {
	struct vgpu_copy_end destination, source;
	__u64 width_bytes, height, depth;
};

struct vgpu_fill {
	__u64 address;
	__u64 pitch;
	__u64 width, height; /* width in elements */
	__u32 element_bytes; /* 1, 2 or 4 */
	__u32 value;
};

/* Names a completion word of the ring that carries the record; token 0 means none. */
struct vgpu_done {
	__u32 slot; /* with VGPU_DONE_AWAITED if the thread does nothing else until then */
	__u32 token;
};
#define VGPU_DONE_AWAITED 0x80000000u

enum vgpu_callback_kind {
	VGPU_CALLBACK_HOST_FUNCTION = 1, /* cuLaunchHostFunc, graph host node: void fn(void *data) */
	VGPU_CALLBACK_STREAM = 2         /* cuStreamAddCallback: void fn(CUstream, CUresult, void *data) */
};

struct vgpu_callback {
	__u64 token; /* given back through next_callback when the function has returned */
	__u64 function, data, stream;
	__u32 kind;
	__s32 status;
};

struct vgpu_pool_props {
	__u64 max_bytes;
	__u64 release_threshold;
};

/* The payload of a graph node, by CUgraphNodeType; kernel nodes are followed by their parameters. */
struct vgpu_host_node {
	__u64 function, data;
};

/* A child graph that itself goes into the node. One that is copied, and that of node_get, is its handle alone. */
struct vgpu_moved_child_node {
	__u64 graph;
	__u64 reserved; /* 0 */
};

struct vgpu_copy_node {
	struct vgpu_copy copy;
	__u64 context;
};

struct vgpu_fill_node {
	struct vgpu_fill fill;
	__u64 context;
};

/* Of a batch of memory operations, in their order; the payload is some of these. */
enum vgpu_memory_op_kind {
	VGPU_MEMORY_OP_WRITE = 1,
	VGPU_MEMORY_OP_WAIT = 2,
	VGPU_MEMORY_OP_BARRIER = 3
};

struct vgpu_memory_op {
	__u64 address, value;
	__u32 kind;
	__u32 bytes; /* 4 or 8; 0 of a barrier */
	__u32 flags; /* CUstreamWaitValue_flags, CUstreamWriteValue_flags or CUstreamMemoryBarrier_flags */
	__u32 reserved;
};
#define VGPU_MEMORY_OPS_MAX 256u

struct vgpu_conditional_node {
	__u64 handle; /* from graph_conditional */
	__u32 type;   /* CUgraphConditionalNodeType */
	__u32 size;   /* graphs of its own */
};
#define VGPU_CONDITIONAL_BODIES_MAX 4096u

struct vgpu_alloc_node {
	__u64 pool;
	__u64 bytes;
	__u64 address; /* out of graph_add_node for allocations, in for frees */
};

/* What one process of a VM gave for others to find: random, and known to this VM's session only. */
struct vgpu_exchange_key {
	__u8 bytes[16];
};

/* Checkpoints of a process by another of the same virtual GPU: what is asked for, and what it answers. */
enum vgpu_checkpoint_action {
	VGPU_CHECKPOINT_STATE = 1,
	VGPU_CHECKPOINT_LOCK = 2,
	VGPU_CHECKPOINT_SAVE = 3,
	VGPU_CHECKPOINT_RESTORE = 4,
	VGPU_CHECKPOINT_UNLOCK = 5
};
enum vgpu_process_state { /* as CUprocessState */
	VGPU_PROCESS_RUNNING = 0,
	VGPU_PROCESS_LOCKED = 1,
	VGPU_PROCESS_CHECKPOINTED = 2
};

/* Shared segments: what a call asks for, and what a process may do with the memory that it is given. */
#define VGPU_SEGMENT_CREATE 1u    /* segment_get: make it if there is none of that name */
#define VGPU_SEGMENT_EXCLUSIVE 2u /* with CREATE: there must be none */
#define VGPU_SEGMENT_READ_ONLY 4u /* segment_attach: reading is enough */
#define VGPU_SEGMENT_NAME_BYTES 64 /* with the NUL */
enum vgpu_segment_access {
	VGPU_SEGMENT_ACCESS_READ = 1,
	VGPU_SEGMENT_ACCESS_WRITE = 2 /* and read */
};

/* Physical memory of its own (cuMemCreate), always on the device. */
struct vgpu_memory_props {
	__u32 compression; /* CUmemAllocationCompType */
	__u32 reserved;
};

/* An array (levels 0) or a mipmapped array, as CUDA_ARRAY3D_DESCRIPTOR. */
struct vgpu_array {
	__u64 width, height, depth; /* in elements; height and depth may be 0 */
	__u32 format, channels;     /* CUarray_format */
	__u32 flags;                /* CUDA_ARRAY3D_* */
	__u32 levels;
};

/* What a texture reads, as CUDA_RESOURCE_DESC. */
struct vgpu_resource {
	__u64 object;         /* handle of an array or mipmapped array */
	__u64 address, bytes; /* linear memory */
	__u64 width, height, pitch;
	__u32 type; /* CUresourcetype */
	__u32 format, channels;
	__u32 reserved;
};

/* How, as CUDA_TEXTURE_DESC. */
struct vgpu_sampler {
	__u32 address_mode[3], filter_mode;
	__u32 flags, max_anisotropy;
	__u32 mipmap_filter_mode;
	float mipmap_level_bias, min_level, max_level;
	float border_color[4];
};

/* Which part, as CUDA_RESOURCE_VIEW_DESC; present 0: all of it. */
struct vgpu_view {
	__u64 width, height, depth;
	__u32 format; /* CUresourceViewFormat */
	__u32 first_level, last_level;
	__u32 first_layer, last_layer;
	__u32 present;
};

struct vgpu_texture {
	struct vgpu_resource resource;
	struct vgpu_sampler sampler;
	struct vgpu_view view;
};

struct vgpu_capture_info {
	__u32 status; /* CUstreamCaptureStatus */
	__u32 dependencies;
	__u64 id;
	__u64 graph;
	/* u64 node[dependencies] follows */
};

/* What cuTensorMapEncode* take; the members that a form does not have are 0. */
enum vgpu_tensor_form {
	VGPU_TENSOR_TILED = 1,
	VGPU_TENSOR_IM2COL = 2,
	VGPU_TENSOR_IM2COL_WIDE = 3
};

struct vgpu_tensor_shape {
	__u64 address;
	__u64 dimensions[5], strides[4]; /* rank of them, and one less: bytes */
	__u32 form, data_type, rank;
	__u32 box[5], element_strides[5];
	__s32 lower[5], upper[5]; /* im2col: rank - 2 of them; wide: the first */
	__u32 channels, pixels;
	__u32 interleave, swizzle, promotion, fill, mode;
	__u32 reserved;
};

struct vgpu_tensor_map {
	__u64 opaque[16];
};

#endif
