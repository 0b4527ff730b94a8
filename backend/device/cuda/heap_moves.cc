// Chunks that change places between the device and host memory. A chunk's bytes are copied to other memory, which then
// takes its place at its address; its old memory goes. While one is copied, the memory of another changes.
//
// Device memory is made and mapped in no time. Host memory is not: the driver finds and pins its pages (5 GB/s on an
// H100), and maps each of them (100 GB/s). So what a chunk has left behind there is kept for the next one that leaves
// the device, and stays mapped at an address of its own, beside that of the chunk.
#include <algorithm>
#include <deque>

#include "backend/device/cuda/heap.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

struct Heap::ChunkMove {
  swap::Exchange::Move what;
  Mapping* chunk = nullptr;
  Mapping made;  // where its bytes go: mapped elsewhere until it takes the chunk's place
  std::shared_ptr<CudaStream> stream;
};

// Streams for the moves of one exchange, whatever the thread's program captures meanwhile. Those of the last one are
// taken, unless their context has been replaced.
struct Heap::Streams {
  Streams(DriverRef its_driver, CudaContextRef in_context, std::vector<std::shared_ptr<CudaStream>>* kept)
      : driver(std::move(its_driver)), context(std::move(in_context)), idle(*kept) {
    std::erase_if(idle, [this](const auto& one) { return one->context != context; });
    driver->cuThreadExchangeStreamCaptureMode(&mode);
  }
  ~Streams() { driver->cuThreadExchangeStreamCaptureMode(&mode); }
  Streams(const Streams&) = delete;
  CUresult take(std::shared_ptr<CudaStream>* stream) {
    if (!idle.empty()) {
      *stream = std::move(idle.back());
      idle.pop_back();
      return CUDA_SUCCESS;
    }
    CUstream made = nullptr;
    const CUresult result = driver->cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS) *stream = std::make_shared<CudaStream>(driver, made, context, true, true);
    return result;
  }

  const DriverRef driver;
  const CudaContextRef context;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  std::vector<std::shared_ptr<CudaStream>>& idle;
};

// Null: there is none any more that lies there.
Heap::Mapping* Heap::find_chunk(uint64_t address, bool on_device) {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  for (Mapping& chunk : std::prev(after)->second.chunks) {
    if (chunk.address == address) return chunk.on_device == on_device ? &chunk : nullptr;
  }
  return nullptr;
}

std::vector<swap::Exchange::Move> Heap::moves_of(const std::vector<uint64_t>& chunks, bool to_device) {
  std::vector<swap::Exchange::Move> moves;
  for (const uint64_t address : chunks) {
    if (const Mapping* const chunk = find_chunk(address, !to_device)) moves.push_back({address, chunk->bytes});
  }
  return moves;
}

// Takes memory for the bytes of a chunk, mapped at an address of its own.
CUresult Heap::map_made(Mapping* made) {
  const auto spare =
      std::find_if(spares_.begin(), spares_.end(), [made](const Mapping& one) { return one.bytes == made->bytes; });
  const bool reuses = !made->on_device && spare != spares_.end();
  if (reuses) *made = *spare;
  if (made->beside == 0) {
    const auto range = ranges_.take(made->bytes, granularity_);
    if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
    made->address = *range;
    const CUresult result = reuses ? map_at(*range, made->bytes, made->handle) : map_chunk(made);
    if (result != CUDA_SUCCESS) ranges_.give_back(*range, made->bytes);
    if (result != CUDA_SUCCESS) return result;
    if (!made->on_device) made->beside = *range;
  }
  if (!made->on_device) made->address = made->beside;
  if (reuses) spares_.erase(spare);
  if (reuses) host_->swap_book()->keep(-static_cast<int64_t>(made->bytes));
  return CUDA_SUCCESS;
}

// Memory that is no chunk's any more.
void Heap::discard(const Mapping& memory) {
  swap::Book* const book = host_->swap_book();
  if (!memory.on_device && book && book->keep(static_cast<int64_t>(memory.bytes))) return spares_.push_back(memory);
  drop(memory);
}

// An address that is still in use is not given to anybody.
CUresult Heap::vacate(uint64_t address, uint64_t bytes) {
  const CUresult result = unmap_at(address, bytes);
  if (result == CUDA_SUCCESS) ranges_.give_back(address, bytes);
  return result;
}

CUresult Heap::drop(const Mapping& memory) {
  if (memory.beside != 0) vacate(memory.beside, memory.bytes);
  return driver_->cuMemRelease(memory.handle);
}

void Heap::drop_spares() {
  for (const Mapping& spare : spares_) {
    drop(spare);
    if (swap::Book* const book = host_->swap_book()) book->keep(-static_cast<int64_t>(spare.bytes));
  }
  spares_.clear();
}

// Where it fails nothing has changed.
CUresult Heap::begin_move(const swap::Exchange::Move& what, ChunkMove* move) {
  move->what = what;
  move->chunk = find_chunk(what.address, !what.to_device);
  Mapping& made = move->made;
  made = {.bytes = what.bytes, .on_device = what.to_device};
  swap::Book* const book = host_->swap_book();
  const bool charged = what.to_device && book->charge_move(what.bytes, true);
  CUresult result = !what.to_device || charged ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) result = map_made(&made);
  if (result == CUDA_SUCCESS) {
    result = driver_->cuMemcpyDtoDAsync(made.address, what.address, what.bytes, move->stream->handle);
    if (result == CUDA_SUCCESS) return result;
    if (made.beside != 0 || vacate(made.address, made.bytes) == CUDA_SUCCESS) discard(made);
  }
  if (charged) book->charge_move(what.bytes, false);
  return result;
}

// Where it fails the old memory stays there. What leaves the device counts there until it is gone.
CUresult Heap::end_move(ChunkMove* move) {
  const auto& [what, chunk, made, stream] = *move;
  swap::Book* const book = host_->swap_book();
  CUresult result = driver_->cuStreamSynchronize(stream->handle);
  if (made.beside == 0) vacate(made.address, made.bytes);
  bool charged = what.to_device;
  if (result == CUDA_SUCCESS && !charged) {
    charged = book->charge_move(what.bytes, false);
    if (!charged) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS) {
    result = rehome(chunk, made);
  } else {
    discard(made);
  }
  if (result != CUDA_SUCCESS && charged) book->charge_move(what.bytes, !what.to_device);
  return result;
}

// `made` takes the chunk's place.
CUresult Heap::rehome(Mapping* chunk, const Mapping& made) {
  CUresult result = unmap_at(chunk->address, chunk->bytes);
  if (result == CUDA_SUCCESS) {
    result = map_at(chunk->address, chunk->bytes, made.handle);
    const CUresult back = result != CUDA_SUCCESS ? map_at(chunk->address, chunk->bytes, chunk->handle) : CUDA_SUCCESS;
    if (back != CUDA_SUCCESS) {
      log::error("memory at {:#x} is lost: {}", chunk->address, driver_->describe(back));
      result = CUDA_ERROR_ILLEGAL_ADDRESS;  // what whoever uses it would get
    }
  }
  if (result != CUDA_SUCCESS) {
    discard(made);
    return result;
  }
  discard(*chunk);
  chunk->handle = made.handle;
  chunk->on_device = made.on_device;
  chunk->beside = made.beside;
  return result;
}

CUresult Heap::exchange_chunks(const CudaContextRef& context, swap::Exchange* exchange, const swap::Moves& moves) {
  Streams streams(driver_, context, &move_streams_);
  std::deque<ChunkMove> under_way;
  CUresult first_error = CUDA_SUCCESS;
  const auto ended = [&](const swap::Exchange::Move& what, CUresult result) {
    exchange->ended(what, result == CUDA_SUCCESS);
    if (first_error == CUDA_SUCCESS) first_error = result;
  };
  const auto end = [&](std::deque<ChunkMove>::iterator which) {
    ChunkMove move = *which;
    under_way.erase(which);
    const CUresult result = end_move(&move);
    streams.idle.push_back(move.stream);
    if (result == CUDA_SUCCESS) moves.moved(move.what.address, move.what.to_device);
    ended(move.what, result);
  };
  const auto coming = [](const ChunkMove& move) { return move.what.to_device; };
  for (;;) {
    while (const auto next = exchange->next()) {
      // What comes leaves host memory behind, which is sooner there than new one.
      while (!next->to_device && spares_.empty()) {
        const auto first = std::find_if(under_way.begin(), under_way.end(), coming);
        if (first == under_way.end()) break;
        end(first);
      }
      ChunkMove move;
      CUresult result = streams.take(&move.stream);
      if (result == CUDA_SUCCESS) result = begin_move(*next, &move);
      if (result != CUDA_SUCCESS) {
        if (move.stream) streams.idle.push_back(move.stream);
        ended(*next, result);
      } else {
        under_way.push_back(move);
      }
    }
    if (under_way.empty()) return first_error;
    end(under_way.begin());
  }
}

// With mutex_, so that nothing is freed meanwhile.
CUresult Heap::move_chunks(const CudaContextRef& context, const swap::Moves& moves) {
  std::lock_guard lock(mutex_);
  swap::Exchange exchange(moves_of(moves.out, false), moves_of(moves.in, true), moves.room);
  return exchange_chunks(context, &exchange, moves);
}

}  // namespace bandsaw::cuda
