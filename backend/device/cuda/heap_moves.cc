// Chunks that leave the device, or come to it. A chunk's bytes are copied to other memory, which then takes its place
// at its address; its old memory goes. While one is copied, the memory of another changes.
#include <algorithm>
#include <deque>

#include "backend/device/cuda/heap.h"
#include "backend/device/cuda/move_streams.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

// After a move, until host memory for the next ones is made: another move may follow, here or where this one's memory
// goes.
constexpr std::chrono::milliseconds kQuiet{50};

}  // namespace

struct Heap::ChunkMove {
  swap::Exchange::Move what;
  Mapping* chunk = nullptr;
  Mapping made;       // where its bytes go: mapped elsewhere until it takes the chunk's place
  bool here = false;  // it has taken that already: the chunk's old memory is mapped beside
  std::shared_ptr<CudaStream> stream;
};

std::vector<swap::Exchange::Move> Heap::moves_of(const std::vector<uint64_t>& chunks, bool to_device) {
  std::vector<swap::Exchange::Move> moves;
  for (const uint64_t address : chunks) {
    if (const Mapping* const chunk = find_chunk(address, !to_device)) moves.push_back({address, chunk->bytes});
  }
  return moves;
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
  if (result == CUDA_SUCCESS && what.to_device && move->chunk->beside != 0) {
    result = begin_coming(what, move);
    if (result == CUDA_SUCCESS) return result;
  } else if (result == CUDA_SUCCESS) {
    result = map_made(&made);
    made.apart = !what.to_device && leave_apart_;
    if (result == CUDA_SUCCESS) {
      result = move_times_.time(MoveTimes::kIssues, [&] {
        return driver_->cuMemcpyDtoDAsync(made.address, what.address, what.bytes, move->stream->handle);
      });
      if (result == CUDA_SUCCESS) return result;
      if (made.beside != 0 || vacate(made.address, made.bytes) == CUDA_SUCCESS) discard(made);
    }
  }
  if (charged) book->charge_move(what.bytes, false);
  return result;
}

// Nothing uses the chunk meanwhile, and its bytes can be reached beside: the memory they go to is mapped but once.
CUresult Heap::begin_coming(const swap::Exchange::Move& what, ChunkMove* move) {
  Mapping& made = move->made;
  CUresult result = create(&made);
  if (result != CUDA_SUCCESS) return result;
  result = replace(what.address, *move->chunk, made);
  if (result != CUDA_SUCCESS) {
    discard(made);
    return result;
  }
  move->here = true;
  result = move_times_.time(MoveTimes::kIssues, [&] {
    return driver_->cuMemcpyDtoDAsync(what.address, move->chunk->beside, what.bytes, move->stream->handle);
  });
  return result == CUDA_SUCCESS ? result : stay_away(*move, result);
}

// A copy to the device has failed.
CUresult Heap::stay_away(const ChunkMove& move, CUresult error) {
  const CUresult back = replace(move.what.address, move.made, *move.chunk);
  if (back != CUDA_SUCCESS) return back;
  discard(move.made);
  return error;
}

CUresult Heap::end_coming(ChunkMove* move) {
  Mapping* const chunk = move->chunk;
  const CUresult result = wait_for(*move->stream);
  if (result != CUDA_SUCCESS) {
    host_->swap_book()->charge_move(move->what.bytes, false);
    return stay_away(*move, result);
  }
  discard(*chunk);
  chunk->handle = move->made.handle;
  chunk->on_device = true;
  chunk->beside = 0;
  chunk->apart = false;
  return result;
}

CUresult Heap::wait_for(const CudaStream& stream) {
  return move_times_.time(MoveTimes::kWaits, [&] { return driver_->cuStreamSynchronize(stream.handle); });
}

// Where it fails the old memory stays there. What leaves the device counts there until it is gone.
CUresult Heap::end_move(ChunkMove* move) {
  if (move->here) return end_coming(move);
  auto& [what, chunk, made, here, stream] = *move;
  swap::Book* const book = host_->swap_book();
  CUresult result = wait_for(*stream);
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

// What is mapped there makes way for other memory. Where it fails it is there again.
CUresult Heap::replace(uint64_t address, const Mapping& old, const Mapping& made) {
  CUresult result = unmap_timed(address, old);
  if (result != CUDA_SUCCESS) return result;
  result = map_timed(address, made);
  const CUresult back = result != CUDA_SUCCESS ? map_timed(address, old) : CUDA_SUCCESS;
  if (back == CUDA_SUCCESS) return result;
  log::error("memory at {:#x} is lost: {}", address, driver_->describe(back));
  return CUDA_ERROR_ILLEGAL_ADDRESS;  // what whoever uses it would get
}

// `made` takes the chunk's place.
CUresult Heap::rehome(Mapping* chunk, const Mapping& made) {
  const CUresult result = replace(chunk->address, *chunk, made);
  if (result != CUDA_SUCCESS) {
    discard(made);
    return result;
  }
  discard(*chunk);
  chunk->handle = made.handle;
  chunk->on_device = made.on_device;
  chunk->beside = made.beside;
  chunk->apart = made.apart;
  return result;
}

CUresult Heap::exchange_chunks(MoveStreams* streams, swap::Exchange* exchange, const swap::Moves& moves) {
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
    streams->give(move.stream);
    if (result == CUDA_SUCCESS) moves.moved(move.what.address, move.what.to_device);
    ended(move.what, result);
  };
  const auto coming = [](const ChunkMove& move) { return move.what.to_device; };
  for (;;) {
    while (const auto next = exchange->next()) {
      // What comes leaves host memory behind, which is sooner there than new one.
      while (!next->to_device && !has_spare(next->bytes)) {
        const auto first = std::find_if(under_way.begin(), under_way.end(), coming);
        if (first == under_way.end()) break;
        end(first);
      }
      ChunkMove move;
      CUresult result = streams->take(&move.stream);
      if (result == CUDA_SUCCESS) result = begin_move(*next, &move);
      if (result != CUDA_SUCCESS) {
        streams->give(move.stream);
        ended(*next, result);
      } else {
        under_way.push_back(move);
      }
    }
    if (under_way.empty()) return first_error;
    end(under_way.begin());
  }
}

CUresult Heap::move_chunks(const CudaContextRef& context, const swap::Moves& moves) {
  const bool prepares = spare_maker_.pause();
  const CUresult result = move_all(context, moves);
  if (prepares) spare_maker_.go_on(kQuiet);
  return result;
}

// It takes mutex_, so that nothing is freed meanwhile.
CUresult Heap::move_all(const CudaContextRef& context, const swap::Moves& moves) {
  std::lock_guard lock(mutex_);
  move_times_ = {};
  leave_apart_ = moves.apart && !spare_;  // what a guard leaves at unused addresses would be taken for the chunk
  const auto begin = std::chrono::steady_clock::now();
  std::vector<swap::Exchange::Move> out = moves_of(moves.out, false), in = moves_of(moves.in, true);
  const size_t goes = out.size(), comes = in.size();
  MoveStreams streams(driver_, context, &move_streams_);
  std::vector<swap::Pair> pairs = swap::take_pairs(&out, &in);
  const size_t paired = pairs.size();
  CUresult result = exchange_pairs(&streams, &pairs, moves);
  // What could not be exchanged in place.
  for (const swap::Pair& pair : pairs) {
    out.push_back(pair.out);
    in.push_back(pair.in);
  }
  if (result == CUDA_SUCCESS) {
    swap::Exchange exchange(out, in, moves.room);
    result = exchange_chunks(&streams, &exchange, moves);
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  log::debug("{} chunks out and {} in, {} in pairs: {:.2f} ms: {}", goes, comes, paired - pairs.size(), took.count(),
             move_times_.text());
  return result;
}

CUresult Heap::reach_chunks(const std::vector<uint64_t>& chunks) {
  const bool prepares = spare_maker_.pause();
  CUresult result = CUDA_SUCCESS;
  {
    std::lock_guard lock(mutex_);
    for (auto chunk = chunks.begin(); chunk != chunks.end() && result == CUDA_SUCCESS; ++chunk)
      result = reach_chunk(*chunk);
  }
  if (prepares) spare_maker_.go_on(kQuiet);
  return result;
}

CUresult Heap::reach_chunk(uint64_t address) {
  Mapping* const chunk = find_chunk(address, false);
  if (!chunk || !chunk->apart) return CUDA_SUCCESS;
  chunk->apart = false;
  const CUresult result = map_timed(address, *chunk);
  chunk->apart = result != CUDA_SUCCESS;
  return result;
}

}  // namespace bandsaw::cuda
