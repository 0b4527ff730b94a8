#include "guest-driver/libcuda/api/staging.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "guest-driver/libcuda/api/copy_cut.h"
#include "guest-driver/libcuda/api/copy_threads.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kPinFrom = 1u << 20;     // pinning costs a few microseconds and a round trip
constexpr uint64_t kKeptFrom = 256u << 10;  // using what is still pinned costs a wait for the device
constexpr uint64_t kStreamFrom = 8u << 20;  // more than a core's caches hold
constexpr uint64_t kPieceLeast = 64u << 10;
constexpr uint32_t kBatchMost = kBounceBytes / kPieceLeast;

// How many bytes go into one record: the device says what it prefers. A bounce buffer holds a batch of such pieces.
uint64_t piece_bytes(const VirtualGpu& gpu) {
  return std::clamp<uint64_t>(gpu.info.piece_bytes, kPieceLeast, kBounceBytes);
}

// The pieces that go through one bounce buffer. Its done word is set when the last of them is done.
struct StagedBatch {
  Bounce bounce;
  Piece pieces[kBatchMost];
  uint32_t count = 0;
  uint64_t piece_bytes = 0;

  std::byte* staged(uint32_t piece) const { return bounce.data + piece * piece_bytes; }
};

// How many pieces make a batch. A short copy is cut into several batches too, so that both sides work at the same time.
uint32_t batch_pieces(const vgpu_copy& copy, uint64_t piece) {
  const uint64_t total = copy.width_bytes * copy.height * copy.depth;
  return static_cast<uint32_t>(std::clamp<uint64_t>(total / kBounceSlots / piece, 1, kBounceBytes / piece));
}

void gather(const vgpu_copy_end& program, const Piece& piece, std::byte* to) {
  for (uint64_t row = 0; row < piece.rows; ++row) {
    CopyThreads::get().copy(to + row * piece.width, byte_at(program, piece.x, piece.y + row, piece.z), piece.width,
                            false);
  }
}

void scatter(const std::byte* from, const Piece& piece, const vgpu_copy_end& program, bool stream) {
  for (uint64_t row = 0; row < piece.rows; ++row) {
    CopyThreads::get().copy(byte_at(program, piece.x, piece.y + row, piece.z), from + row * piece.width, piece.width,
                            stream);
  }
}

CUresult copy_awaited(Call& call, const vgpu_copy& copy, uint64_t stream) {
  Bounce completion;
  CUresult result = call.completion(&completion);
  const vgpu_done awaited{completion.done.slot | VGPU_DONE_AWAITED, completion.done.token};
  if (result == CUDA_SUCCESS) result = wire::copy(call, copy, stream, awaited);
  if (result != CUDA_SUCCESS) return result;
  call.bounce_used(completion);
  return call.wait_done(completion);
}

// Copies in place, with the program's pages pinned. False: the copy has to be staged, because it is short, direct mode
// cannot pin, or the pages are pinned already.
bool copy_pinned(Call& call, const vgpu_copy& copy, bool to_program, uint64_t stream, CUresult* result) {
  static std::atomic<bool> never{false};
  const vgpu_copy_end& program = to_program ? copy.destination : copy.source;
  const uint64_t span = ((copy.depth - 1) * program.height + copy.height - 1) * program.pitch + copy.width_bytes;
  if (span < kKeptFrom || never.load(std::memory_order_relaxed)) return false;
  if (span / 2 > copy.width_bytes * copy.height * copy.depth) return false;  // mostly gaps
  SharedMemory& memory = *call.gpu().memory;
  BorrowedPin pin;
  const CUresult borrowed =
      memory.borrow(reinterpret_cast<void*>(program.address), span, to_program, span < kPinFrom, &pin);
  if (borrowed == CUDA_ERROR_NOT_SUPPORTED) never.store(true, std::memory_order_relaxed);
  if (borrowed != CUDA_SUCCESS) return false;
  *result = copy_awaited(call, copy, stream);
  const CUresult returned = memory.give_back(pin);
  if (*result == CUDA_SUCCESS) *result = returned;
  return true;
}

// Publishes the records of the next batch of a copy to the program. `piece` is the next piece while `more` is true.
CUresult request(Call& call, const vgpu_copy& copy, uint64_t stream, uint32_t most, Pieces* pieces, Piece* piece,
                 bool* more, StagedBatch* batch) {
  CUresult result = call.bounce(&batch->bounce);
  if (result != CUDA_SUCCESS) return result;
  batch->piece_bytes = piece_bytes(call.gpu());
  for (batch->count = 0; batch->count < most && *more;) {
    const vgpu_copy record = record_of(copy, *piece, batch->staged(batch->count), &vgpu_copy::destination);
    batch->pieces[batch->count++] = *piece;
    *more = pieces->next(piece);
    const bool last = batch->count == most || !*more;
    result = wire::copy(call, record, stream, last ? batch->bounce.done : vgpu_done{});
    if (result != CUDA_SUCCESS) return result;
  }
  call.bounce_used(batch->bounce);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy_from_program(Call& call, const vgpu_copy& copy, uint64_t stream, bool judged) {
  CUresult result = CUDA_SUCCESS;
  if (copy_pinned(call, copy, false, stream, &result)) return result;
  const uint64_t each = piece_bytes(call.gpu());
  Pieces pieces(copy, each);
  Piece piece;
  const uint32_t most = judged ? 1 : batch_pieces(copy, each);
  bool more = pieces.next(&piece);
  while (more) {
    Bounce bounce;
    result = call.bounce(&bounce);
    if (result != CUDA_SUCCESS) return result;
    for (uint32_t i = 0; i < most && more; ++i) {
      std::byte* const staged = bounce.data + i * each;
      gather(copy.source, piece, staged);
      const vgpu_copy record = record_of(copy, piece, staged, &vgpu_copy::source);
      more = pieces.next(&piece);
      const bool last = i + 1 == most || !more;
      result = wire::copy(call, record, stream, last ? bounce.done : vgpu_done{});
      if (result != CUDA_SUCCESS) return result;
    }
    call.bounce_used(bounce);
    if (judged && (result = call.wait_done(bounce)) != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult copy_to_program(Call& call, const vgpu_copy& copy, uint64_t stream, bool judged) {
  CUresult result = CUDA_SUCCESS;
  if (copy_pinned(call, copy, true, stream, &result)) return result;
  const bool streaming = copy.width_bytes * copy.height * copy.depth >= kStreamFrom;
  StagedBatch flying[kBounceSlots];
  uint64_t issued = 0, landed = 0;
  const uint64_t each = piece_bytes(call.gpu());
  Pieces pieces(copy, each);
  Piece piece;
  const uint32_t most = judged ? 1 : batch_pieces(copy, each);
  bool more = pieces.next(&piece);
  while (more || landed < issued) {
    if (more && issued - landed < kBounceSlots) {
      StagedBatch& batch = flying[issued % kBounceSlots];
      result = request(call, copy, stream, most, &pieces, &piece, &more, &batch);
      if (result != CUDA_SUCCESS) return result;
      ++issued;
      continue;
    }
    const StagedBatch& batch = flying[landed % kBounceSlots];
    result = call.wait_done(batch.bounce);
    if (result != CUDA_SUCCESS) return result;
    for (uint32_t i = 0; i < batch.count; ++i) scatter(batch.staged(i), batch.pieces[i], copy.destination, streaming);
    ++landed;
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda
