/* What libcuda.so.1 tells a profiler's library: a table behind cuGetExportTable, for libraries of the same release.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. Strings and records live until the function that is given them returns,
 * but for bandsaw_traced_call.entry, which lives on. */
#ifndef BANDSAW_TRACE_TABLE_H
#define BANDSAW_TRACE_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* As the bytes of CUuuid. */
#define BANDSAW_TRACE_TABLE_UUID                                                                                       \
	{ 0x62, 0x61, 0x6e, 0x64, 0x73, 0x61, 0x77, 0x2d, 0x74, 0x72, 0x61, 0x63, 0x65, 0x2d, 0x30, 0x31 }

enum bandsaw_work_kind {
	BANDSAW_WORK_KERNEL = 1,
	BANDSAW_WORK_GRAPH = 2, /* an executable graph, measured as a whole */
	BANDSAW_WORK_COPY = 3,
	BANDSAW_WORK_FILL = 4
};

enum bandsaw_memory_side {
	BANDSAW_SIDE_DEVICE = 1,
	BANDSAW_SIDE_PINNED = 2,
	BANDSAW_SIDE_PAGEABLE = 3,
	BANDSAW_SIDE_ARRAY = 4
};

/* A call of the driver interface by the program; those that it makes itself inside are not told. */
struct bandsaw_traced_call {
	const char *entry; /* the function's name, without _ptds or _ptsz */
	uint64_t id;       /* from 1 on */
	uint64_t begin_ns, end_ns;
	uint64_t context;      /* cuCtxGetId's of the current one; 0: none */
	uint64_t waits_stream; /* cuStreamGetId's of the stream that the call has waited for; 0: none */
	uint64_t waits_event;  /* a number of the event that the call has waited for; 0: none */
	uint32_t error;        /* CUresult that the host answered with, 0 if it did not refuse */
	uint32_t per_thread;   /* 1: the _ptds or _ptsz form */
};

/* What a call put on a stream, with the device's own times. */
struct bandsaw_traced_work {
	uint32_t kind;       /* enum bandsaw_work_kind */
	uint32_t device;     /* ordinal */
	uint64_t call;       /* id of the call; what it puts on streams is told as one */
	uint64_t context;    /* cuCtxGetId's */
	uint64_t stream;     /* cuStreamGetId's */
	uint64_t begin_ns, end_ns;
	const char *name;    /* of a kernel, as in its image */
	uint32_t grid[3], block[3], cluster[3];
	uint32_t registers, static_shared, dynamic_shared, local; /* for a thread, a block, a block, a thread */
	uint64_t bytes;      /* of a copy or fill */
	uint32_t source, destination; /* enum bandsaw_memory_side; of a fill the destination */
	uint32_t value;      /* of a fill */
	uint32_t asynchronous; /* 1: the call did not wait for it */
	uint64_t mark;         /* what the listener's mark() said when it was issued */
};

/* Functions are called by any thread, several at a time, and may not call the driver. */
struct bandsaw_trace_listener {
	uint64_t (*mark)(void);                               /* what is wanted now; 0: neither calls nor work */
	void (*call)(const struct bandsaw_traced_call *call); /* on its thread, when it ends */
	void (*work)(const struct bandsaw_traced_work *work);
	void (*lost)(uint64_t pieces);                          /* of work that was not measured */
	void (*context_created)(void *context);                 /* a CUcontext, and below */
	void (*context_ends)(void *context);
};

struct bandsaw_trace_table {
	size_t bytes; /* of this table */
	/* NULL: nobody listens any more, also not to work that was issued before. The listener must live on. */
	void (*listen)(const struct bandsaw_trace_listener *listener);
	/* Tells of the work that is done; with wait, waits up to 2 s for all that was issued. */
	void (*flush)(int wait);
	/* cuCtxGetId's and device of a CUcontext, NULL for the current one; 0: there is no such context. */
	int (*context)(void *context, uint64_t *id, uint32_t *device);
	/* cuStreamGetId's of a CUstream; 0: there is no such stream. */
	int (*stream)(void *stream, int per_thread, uint64_t *id);
};

#endif
