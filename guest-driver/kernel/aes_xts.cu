// AES-XTS (IEEE 1619) over a batch of requests: the device's part of vgpu_crypto.ko, which loads it as the firmware
// bandsaw/aes_xts.ptx. Words are little endian, as the kernel's key schedules are.
#include <cstdint>

#include "crypto_batch.h"

namespace vgpu_xts
{

static_assert(sizeof(vgpu_xts_batch) <= VGPU_XTS_STAMP_OFFSET && sizeof(vgpu_xts_row) == 32 &&
	      sizeof(vgpu_xts_request) == 32);

constexpr uint32_t kBlockBytes = 16;
constexpr uint32_t kBlocksOfRow = VGPU_XTS_ROW_BYTES / kBlockBytes;

// What SubBytes and MixColumns do to a byte, in one word; the other bytes of a column rotate it.
struct Tables {
	uint32_t encrypt[256], decrypt[256];
	uint8_t box[256], inverse_box[256];
};

constexpr uint8_t times(uint8_t a, uint8_t b)
{
	uint8_t product = 0;
	for (int bit = 0; bit < 8; bit++) {
		if (b >> bit & 1)
			product = static_cast<uint8_t>(product ^ a);
		a = static_cast<uint8_t>(a << 1 ^ (a >> 7) * 0x1b);
	}
	return product;
}

constexpr uint8_t rotated(uint8_t value, int by)
{
	return static_cast<uint8_t>(value << by | value >> (8 - by));
}

constexpr Tables make_tables()
{
	Tables tables{};
	uint8_t power = 1, inverse = 1;  // powers of 3 and of its inverse meet every value but 0
	for (int i = 0; i < 255; i++) {
		const auto box = static_cast<uint8_t>(inverse ^ rotated(inverse, 1) ^ rotated(inverse, 2) ^
						      rotated(inverse, 3) ^ rotated(inverse, 4) ^ 0x63);
		tables.box[power] = box;
		tables.inverse_box[box] = power;
		power = times(power, 3);
		inverse = times(inverse, 0xf6);
	}
	tables.box[0] = 0x63;
	tables.inverse_box[0x63] = 0;
	for (int i = 0; i < 256; i++) {
		const uint8_t s = tables.box[i], r = tables.inverse_box[i];
		tables.encrypt[i] = uint32_t{ times(s, 2) } | uint32_t{ s } << 8 | uint32_t{ s } << 16 |
				    uint32_t{ times(s, 3) } << 24;
		tables.decrypt[i] = uint32_t{ times(r, 14) } | uint32_t{ times(r, 9) } << 8 |
				    uint32_t{ times(r, 13) } << 16 | uint32_t{ times(r, 11) } << 24;
	}
	return tables;
}

constexpr Tables kTables = make_tables();
static_assert(kTables.box[0x53] == 0xed && kTables.inverse_box[0xed] == 0x53);
__constant__ Tables constant_tables = kTables;

// Threads of a warp look up different bytes, which constant memory serves one after the other.
__device__ void load(Tables *shared)
{
	const uint32_t i = threadIdx.x;
	shared->encrypt[i] = constant_tables.encrypt[i];
	shared->decrypt[i] = constant_tables.decrypt[i];
	shared->box[i] = constant_tables.box[i];
	shared->inverse_box[i] = constant_tables.inverse_box[i];
	__syncthreads();
}

__device__ uint32_t byte_of(uint32_t word, int index)
{
	return word >> 8 * index & 0xff;
}
__device__ uint32_t turned(uint32_t word, int bytes)
{
	return __funnelshift_l(word, word, 8 * bytes);
}

// kStep: 1 for encryption, 3 for decryption: from which column each row of the state comes.
template <int kStep>
__device__ void crypt_rounds(const uint32_t *table, const uint8_t *box, const uint32_t *key, uint32_t rounds,
			     uint32_t state[4])
{
	for (int i = 0; i < 4; i++)
		state[i] ^= key[i];
#pragma unroll 1
	for (uint32_t round = 1; round < rounds; round++) {
		key += 4;
		uint32_t next[4];
		for (int i = 0; i < 4; i++) {
			next[i] = table[byte_of(state[i], 0)] ^ turned(table[byte_of(state[i + kStep & 3], 1)], 1) ^
				  turned(table[byte_of(state[i + 2 & 3], 2)], 2) ^
				  turned(table[byte_of(state[i + 3 * kStep & 3], 3)], 3) ^ key[i];
		}
		for (int i = 0; i < 4; i++)
			state[i] = next[i];
	}
	key += 4;
	uint32_t last[4];
	for (int i = 0; i < 4; i++) {
		last[i] = (uint32_t{ box[byte_of(state[i], 0)] } |
			   uint32_t{ box[byte_of(state[i + kStep & 3], 1)] } << 8 |
			   uint32_t{ box[byte_of(state[i + 2 & 3], 2)] } << 16 |
			   uint32_t{ box[byte_of(state[i + 3 * kStep & 3], 3)] } << 24) ^
			  key[i];
	}
	for (int i = 0; i < 4; i++)
		state[i] = last[i];
}

struct Tweak {
	uint64_t low, high;
};

// By x^n, n from 0 to 32; x^128 is x^7 + x^2 + x + 1.
__device__ Tweak times_x(Tweak tweak, uint32_t n)
{
	if (n == 0)
		return tweak;
	const uint64_t out = tweak.high >> (64 - n);
	return { tweak.low << n ^ out ^ out << 1 ^ out << 2 ^ out << 7, tweak.high << n | tweak.low >> (64 - n) };
}

__device__ void crypt_block(const Tables &tables, const vgpu_xts_key &key, Tweak tweak, uint32_t state[4])
{
	const uint32_t words[4] = { static_cast<uint32_t>(tweak.low), static_cast<uint32_t>(tweak.low >> 32),
				    static_cast<uint32_t>(tweak.high), static_cast<uint32_t>(tweak.high >> 32) };
	for (int i = 0; i < 4; i++)
		state[i] ^= words[i];
	if (key.decrypt)
		crypt_rounds<3>(tables.decrypt, tables.inverse_box, key.data, key.rounds, state);
	else
		crypt_rounds<1>(tables.encrypt, tables.box, key.data, key.rounds, state);
	for (int i = 0; i < 4; i++)
		state[i] ^= words[i];
}

// What stands between the two blocks of ciphertext stealing: the bytes after the last whole block and those of its result
// change places, and what is then in `state` is another block.
__device__ void steal(uint8_t *after, uint32_t rest, uint32_t state[4])
{
	for (uint32_t i = 0; i < rest; i++) {
		uint32_t &word = state[i / 4];
		const uint32_t shift = i % 4 * 8, byte = word >> shift & 0xff;
		word = (word & ~(0xffu << shift)) | uint32_t{ after[i] } << shift;
		after[i] = static_cast<uint8_t>(byte);
	}
}

__device__ const vgpu_xts_request &request_of(const uint8_t *memory, uint32_t index)
{
	const uint32_t rows = reinterpret_cast<const vgpu_xts_batch *>(memory)->rows;
	return reinterpret_cast<const vgpu_xts_request *>(memory + VGPU_XTS_REQUESTS_OFFSET(rows))[index];
}

} // namespace vgpu_xts

using namespace vgpu_xts;

// A thread for each request: the tweaks of its rows.
extern "C" __global__ void vgpu_xts_tweaks(uint8_t *memory)
{
	__shared__ Tables tables;
	load(&tables);
	auto *const batch = reinterpret_cast<vgpu_xts_batch *>(memory);
	auto *const rows = reinterpret_cast<vgpu_xts_row *>(memory + VGPU_XTS_ROWS_OFFSET);
	const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
	if (index == 0)
		batch->seen = batch->stamp;
	if (index >= batch->requests)
		return;
	const vgpu_xts_request &request = request_of(memory, index);
	const vgpu_xts_key &key = batch->keys[request.key];
	uint32_t state[4];
	for (int i = 0; i < 4; i++)
		state[i] = reinterpret_cast<const uint32_t *>(request.iv)[i];
	crypt_rounds<1>(tables.encrypt, tables.box, key.tweak, key.rounds, state);
	Tweak tweak{ state[0] | uint64_t{ state[1] } << 32, state[2] | uint64_t{ state[3] } << 32 };
	const uint32_t count = (request.bytes + VGPU_XTS_ROW_BYTES - 1) / VGPU_XTS_ROW_BYTES;
	for (uint32_t i = 0; i < count; i++) {
		rows[request.first_row + i] = { { tweak.low, tweak.high }, index, {} };
		tweak = times_x(tweak, kBlocksOfRow);
	}
}

// A thread for each block of AES.
extern "C" __global__ void vgpu_xts_crypt(uint8_t *memory)
{
	__shared__ Tables tables;
	load(&tables);
	const auto *const batch = reinterpret_cast<const vgpu_xts_batch *>(memory);
	const auto *const rows = reinterpret_cast<const vgpu_xts_row *>(memory + VGPU_XTS_ROWS_OFFSET);
	const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
	if (index == 0)
		*reinterpret_cast<uint64_t *>(memory + VGPU_XTS_STAMP_OFFSET) = batch->seen;
	const uint32_t row = index / kBlocksOfRow, lane = index % kBlocksOfRow;
	if (row >= batch->rows)
		return;
	const vgpu_xts_request &request = request_of(memory, rows[row].request);
	const uint32_t block = (row - request.first_row) * kBlocksOfRow + lane;
	const uint32_t whole = request.bytes / kBlockBytes, rest = request.bytes % kBlockBytes;
	if (block >= whole)
		return;
	const Tweak tweak = times_x({ rows[row].tweak[0], rows[row].tweak[1] }, lane);
	uint8_t *const data = memory + VGPU_XTS_DATA_OFFSET + (index * kBlockBytes);
	const vgpu_xts_key &key = batch->keys[request.key];
	const bool steals = rest && block == whole - 1;
	auto *const words = reinterpret_cast<uint4 *>(data);
	const uint4 in = *words;
	uint32_t state[4] = { in.x, in.y, in.z, in.w };
#pragma unroll 1
	for (int pass = 0; pass <= steals; pass++) {
		if (pass == 1)
			steal(data + kBlockBytes, rest, state);
		// The end of a request has the tweaks of two blocks; decryption takes them in the other order.
		const bool next = steals && (pass == 1) != (key.decrypt != 0);
		crypt_block(tables, key, times_x(tweak, next), state);
	}
	*words = { state[0], state[1], state[2], state[3] };
}
