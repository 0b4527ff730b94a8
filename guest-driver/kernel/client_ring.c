// SPDX-License-Identifier: GPL-2.0-only
/* Records of the kernel's own clients: what libcuda's command_ring.cc does, for one ring. See uapi/protocol.md. */
#include <linux/delay.h>
#include <linux/export.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>

#include "client_ring.h"

#define POLL_NS (30 * NSEC_PER_USEC) /* before it sleeps */
#define SLEEP_JIFFIES (HZ / 10)      /* then it looks again, in case a wake-up was lost */

typedef bool (*ready_t)(struct vgpu_client *client, u64 what);

static bool reply_ready(struct vgpu_client *client, u64 sequence)
{
	return smp_load_acquire(&client->ring->reply_seq) == sequence;
}

static bool has_room(struct vgpu_client *client, u64 bytes)
{
	return client->tail - smp_load_acquire(&client->ring->head) + bytes <= VGPU_RING_RECORDS_BYTES;
}

/* After a sticky error no done word needs to come. */
static bool done_ready(struct vgpu_client *client, u64 what)
{
	const u64 word = smp_load_acquire(&client->ring->done[what >> 32]);

	return (s32)((u32)(word >> 32) - (u32)what) >= 0 || READ_ONCE(client->ring->sticky_error);
}

static bool poll_for(struct vgpu_client *client, ready_t ready, u64 what)
{
	const u64 end = ktime_get_ns() + POLL_NS;

	do {
		if (ready(client, what))
			return true;
		cpu_relax();
	} while (num_online_cpus() > 1 && ktime_get_ns() < end);
	return false;
}

static int wait_for(struct vgpu_client *client, ready_t ready, u64 what, long timeout)
{
	struct vgpu_process *process = client->process;
	const unsigned long end = jiffies + timeout;
	int error = 0;

	if (poll_for(client, ready, what))
		return 0;
	for (;;) {
		const u64 seen = atomic64_read(&process->events);

		WRITE_ONCE(client->ring->guest_waiting, 1);
		smp_mb(); /* the host reads guest_waiting after it has answered */
		if (ready(client, what))
			break;
		error = vgpu_process_usable(process);
		if (!error && time_after(jiffies, end))
			error = -ETIMEDOUT;
		if (error)
			break;
		wait_event_timeout(process->wait,
				   (u64)atomic64_read(&process->events) != seen || vgpu_process_usable(process),
				   SLEEP_JIFFIES);
	}
	WRITE_ONCE(client->ring->guest_waiting, 0);
	/* An answer may have come before the end. */
	return error && ready(client, what) ? 0 : error;
}

/* The runner wakes nobody for room. */
static int wait_for_room(struct vgpu_client *client, u32 bytes, long timeout)
{
	const unsigned long end = jiffies + timeout;

	while (!has_room(client, bytes)) {
		const int error = vgpu_process_usable(client->process);

		if (error)
			return error;
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
		usleep_range(100, 200);
	}
	return 0;
}

int vgpu_client_publish(struct vgpu_client *client, const struct vgpu_client_call *call, long timeout)
{
	void *records = (void *)client->ring + VGPU_RING_RECORDS_OFFSET;
	const u32 bytes =
		ALIGN(sizeof(struct vgpu_record) + call->arguments_bytes + call->data_bytes, VGPU_RECORD_ALIGN);
	const u32 at = client->tail % VGPU_RING_RECORDS_BYTES;
	const u32 pad = bytes > VGPU_RING_RECORDS_BYTES - at ? VGPU_RING_RECORDS_BYTES - at : 0;
	struct vgpu_record *record = records + at;
	int error;

	if (bytes > VGPU_RECORD_MAX_BYTES)
		return -EMSGSIZE;
	if (!client->opcodes[call->call])
		return -EOPNOTSUPP;
	error = wait_for_room(client, pad + bytes, timeout);
	if (error)
		return error;
	if (pad) {
		/* The runner reads the first 8 bytes only, and there may be no more than 16. */
		record->bytes = pad;
		record->opcode = VGPU_OPCODE_PAD;
		record = records;
	}
	*record = (struct vgpu_record){
		.bytes = bytes,
		.opcode = client->opcodes[call->call],
		.seq = ++client->sequence,
		.context = client->context,
	};
	memcpy(record + 1, call->arguments, call->arguments_bytes);
	memcpy((void *)(record + 1) + call->arguments_bytes, call->data, call->data_bytes);
	client->tail += pad + bytes;
	smp_store_release(&client->ring->tail, client->tail);
	smp_mb(); /* the runner reads tail after it has set host_sleeping */
	return READ_ONCE(client->ring->host_sleeping) ? vgpu_process_kick(client->process) : 0;
}

int vgpu_client_outcome(struct vgpu_client *client, u32 result)
{
	const u32 sticky = READ_ONCE(client->ring->sticky_error);

	if (!sticky && !result)
		return 0;
	client->result = sticky ?: result;
	return -EREMOTEIO;
}

int vgpu_client_wait_reply(struct vgpu_client *client, long timeout)
{
	return wait_for(client, reply_ready, client->sequence, timeout);
}

const void *vgpu_client_reply(struct vgpu_client *client, u32 bytes)
{
	if (READ_ONCE(client->ring->reply_bytes) < bytes || bytes > VGPU_RING_REPLY_BYTES)
		return NULL;
	return (void *)client->ring + VGPU_RING_REPLY_OFFSET;
}

struct vgpu_done vgpu_client_next_done(struct vgpu_client *client, u32 slot)
{
	u32 *token = &client->tokens[slot];

	/* 0 names none. */
	if (!++*token)
		++*token;
	return (struct vgpu_done){ .slot = slot, .token = *token };
}
EXPORT_SYMBOL_GPL(vgpu_client_next_done);

int vgpu_client_wait_done(struct vgpu_client *client, struct vgpu_done done, long timeout)
{
	const int error = wait_for(client, done_ready, (u64)done.slot << 32 | done.token, timeout);
	u64 word;

	if (error)
		return error;
	word = READ_ONCE(client->ring->done[done.slot]);
	return vgpu_client_outcome(client, (u32)(word >> 32) == done.token ? (u32)word : 0);
}
EXPORT_SYMBOL_GPL(vgpu_client_wait_done);
