// Chunks of one size that change places in pairs. Nothing uses them meanwhile: so the one that comes is copied to where
// the one that goes is still mapped, behind that one's copy, and takes that memory. The device goes from copy to copy
// in both directions without the processor, which changes the mappings of those that are done.
#include <deque>

#include "backend/device/cuda/heap.h"
#include "backend/device/cuda/move_streams.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

// Pairs whose copies have been issued: what one has left behind in host memory is taken by one after these.
constexpr size_t kPairsMost = 4;

}  // namespace

struct Heap::PairMove {
  swap::Pair what;
  Mapping *goes = nullptr, *comes = nullptr;
  Mapping host;  // takes what goes
  CUevent came = nullptr;
};

struct Heap::PairStreams {
  std::shared_ptr<CudaStream> out, in;
};

// False: one that is under way has to end first, or there is no host memory for any.
bool Heap::may_begin_pair(uint64_t bytes, size_t under_way) {
  if (under_way >= kPairsMost) return false;
  if (has_spare(bytes)) return true;
  // Beside what is charged there is as much more host memory as may be kept.
  swap::Book* const book = host_->swap_book();
  if (!book->keep(static_cast<int64_t>(bytes))) return false;
  book->keep(-static_cast<int64_t>(bytes));
  return true;
}

// Where it fails nothing has changed.
CUresult Heap::begin_pair(PairStreams* streams, PairMove* move) {
  const auto& [out, in] = move->what;
  move->goes = find_chunk(out.address, true);
  move->comes = find_chunk(in.address, false);
  move->host = {.bytes = out.bytes, .on_device = false};
  CUresult result = map_made(&move->host);
  if (result != CUDA_SUCCESS) return result;
  move->host.apart = leave_apart_;
  const CudaContextRef& context = streams->out->context;
  result = move_events_.take(context, &move->came);
  if (result == CUDA_SUCCESS) {
    result = copy_pair(streams, move);
    if (result == CUDA_SUCCESS) return result;
    move_events_.give(context, move->came);
    driver_->cuStreamSynchronize(streams->out->handle);
  }
  discard(move->host);
  return result;
}

CUresult Heap::copy_pair(PairStreams* streams, PairMove* move) {
  const auto begin = std::chrono::steady_clock::now();
  const CUstream out = streams->out->handle, in = streams->in->handle;
  const uint64_t place = move->goes->address, bytes = move->what.out.bytes;
  const uint64_t from = move->comes->beside != 0 ? move->comes->beside : move->comes->address;
  // The event serves twice: a wait is for what it stood for when it was issued.
  CUresult result = driver_->cuMemcpyDtoDAsync(move->host.beside, place, bytes, out);
  if (result == CUDA_SUCCESS) result = driver_->cuEventRecordWithFlags(move->came, out, CU_EVENT_RECORD_DEFAULT);
  if (result == CUDA_SUCCESS) result = driver_->cuStreamWaitEvent(in, move->came, CU_EVENT_WAIT_DEFAULT);
  if (result == CUDA_SUCCESS) result = driver_->cuMemcpyDtoDAsync(place, from, bytes, in);
  if (result == CUDA_SUCCESS) result = driver_->cuEventRecordWithFlags(move->came, in, CU_EVENT_RECORD_DEFAULT);
  move_times_.add(MoveTimes::kIssues, begin);
  return result;
}

// Both keep their memory where it fails.
CUresult Heap::change_places(PairStreams* streams, const PairMove& move) {
  const uint64_t goes = move.goes->address, comes = move.comes->address;
  bool first = false, second = false;  // what was there is unmapped
  CUresult result = unmap_timed(goes, *move.goes);
  if (result == CUDA_SUCCESS) {
    first = true;
    result = unmap_timed(comes, *move.comes);
  }
  if (result == CUDA_SUCCESS) {
    second = true;
    result = map_timed(comes, *move.goes);
  }
  if (result == CUDA_SUCCESS) {
    result = map_timed(goes, move.host);
    if (result == CUDA_SUCCESS) return result;
    unmap_timed(comes, *move.goes);
  }
  CUresult back = first ? map_timed(goes, *move.goes) : CUDA_SUCCESS;
  if (back == CUDA_SUCCESS && second) back = map_timed(comes, *move.comes);
  const CUstream stream = streams->out->handle;
  if (back == CUDA_SUCCESS) back = driver_->cuMemcpyDtoDAsync(goes, move.host.beside, move.host.bytes, stream);
  if (back == CUDA_SUCCESS) back = driver_->cuStreamSynchronize(stream);
  if (back == CUDA_SUCCESS) return result;
  log::error("memory at {:#x} or {:#x} is lost: {}", goes, comes, driver_->describe(back));
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult Heap::end_pair(PairStreams* streams, PairMove* move) {
  CUresult result = move_times_.time(MoveTimes::kWaits, [&] { return driver_->cuEventSynchronize(move->came); });
  move_events_.give(streams->out->context, move->came);
  if (result == CUDA_SUCCESS) result = change_places(streams, *move);
  if (result != CUDA_SUCCESS) {
    discard(move->host);
    return result;
  }
  Mapping &goes = *move->goes, &comes = *move->comes;
  const Mapping left = comes;
  comes.handle = goes.handle;
  comes.on_device = true;
  comes.beside = 0;
  comes.apart = false;
  goes.handle = move->host.handle;
  goes.on_device = false;
  goes.beside = move->host.beside;
  goes.apart = move->host.apart;
  discard(left);
  host_->swap_book()->exchanged(move->what.out.bytes);
  return result;
}

// Leaves those that have not been begun, because there is no host memory for it.
CUresult Heap::exchange_pairs(MoveStreams* streams, std::vector<swap::Pair>* pairs, const swap::Moves& moves) {
  if (pairs->empty()) return CUDA_SUCCESS;
  PairStreams two;
  CUresult first_error = streams->take(&two.out);
  if (first_error == CUDA_SUCCESS) first_error = streams->take(&two.in);
  std::deque<PairMove> under_way;
  size_t begun = 0;
  while (first_error == CUDA_SUCCESS || !under_way.empty()) {
    const bool more = first_error == CUDA_SUCCESS && begun < pairs->size();
    if (more && may_begin_pair((*pairs)[begun].out.bytes, under_way.size())) {
      PairMove move;
      move.what = (*pairs)[begun];
      first_error = begin_pair(&two, &move);
      if (first_error != CUDA_SUCCESS) continue;
      under_way.push_back(move);
      ++begun;
      continue;
    }
    if (under_way.empty()) break;
    PairMove move = under_way.front();
    under_way.pop_front();
    const CUresult result = end_pair(&two, &move);
    if (first_error == CUDA_SUCCESS) first_error = result;
    if (result != CUDA_SUCCESS) continue;
    moves.moved(move.what.out.address, false);
    moves.moved(move.what.in.address, true);
  }
  streams->give(two.out);
  streams->give(two.in);
  pairs->erase(pairs->begin(), pairs->begin() + static_cast<std::ptrdiff_t>(begun));
  return first_error;
}

}  // namespace bandsaw::cuda
