// The driver's own checkpoint could do that too, at 2 GB/s; several threads with the copy engine reach what the bus
// does.
#include "backend/device/cuda/away_copy.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

namespace bandsaw::cuda {
namespace {

// Small enough that the processor finds in its cache what the device has just written.
constexpr uint64_t kAwayPieceBytes = 2u << 20;
// Fresh pages are made meanwhile, which takes a processor longer than the copy.
constexpr unsigned kCopyThreadsMost = 16;
// Fewer of a thread: it would take longer to begin than to copy them.
constexpr uint64_t kFewBytes = 32u << 20;

// One thread's way between the device and pages that are not registered: two buffers that are, one of which is copied
// by the device while the other is by the processor.
class AwayCopier {
 public:
  explicit AwayCopier(const Driver& driver) : driver_(driver) {}
  ~AwayCopier() {
    for (Lane& lane : lanes_) {
      if (lane.stream) driver_.cuStreamDestroy(lane.stream);
    }
    if (registered_) driver_.cuMemHostUnregister(buffer_);
    if (buffer_) ::munmap(buffer_, kBufferBytes);
  }
  AwayCopier(const AwayCopier&) = delete;

  CUresult prepare() {
    void* const made = ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    buffer_ = static_cast<std::byte*>(made);
    ::madvise(buffer_, kBufferBytes, MADV_HUGEPAGE);
    if (const CUresult result = driver_.cuMemHostRegister(buffer_, kBufferBytes, 0)) return result;
    registered_ = true;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].buffer = buffer_ + i * kAwayPieceBytes;
      if (const CUresult result = driver_.cuStreamCreateWithPriority(&lanes_[i].stream, CU_STREAM_NON_BLOCKING, 0)) {
        return result;
      }
    }
    return CUDA_SUCCESS;
  }

  CUresult add(const AwayPiece& piece, bool to_device) {
    Lane& lane = lanes_[next_++ % lanes_.size()];
    if (const CUresult result = finish(lane)) return result;
    if (to_device) {
      std::memcpy(lane.buffer, piece.pages, piece.bytes);
      lane.busy = true;
      return driver_.cuMemcpyHtoDAsync(piece.address, lane.buffer, piece.bytes, lane.stream);
    }
    lane.busy = true;
    lane.arriving = piece;
    return driver_.cuMemcpyDtoHAsync(lane.buffer, piece.address, piece.bytes, lane.stream);
  }

  CUresult finish() {
    CUresult result = CUDA_SUCCESS;
    for (Lane& lane : lanes_) {
      const CUresult one = finish(lane);
      if (result == CUDA_SUCCESS) result = one;
    }
    return result;
  }

 private:
  static constexpr uint64_t kBufferBytes = 2 * kAwayPieceBytes;
  struct Lane {
    CUstream stream = nullptr;
    std::byte* buffer = nullptr;
    bool busy = false;
    AwayPiece arriving;  // what the buffer will hold for; none: it leaves
  };

  CUresult finish(Lane& lane) {
    if (!lane.busy) return CUDA_SUCCESS;
    lane.busy = false;
    if (const CUresult result = driver_.cuStreamSynchronize(lane.stream)) return result;
    if (lane.arriving.pages) std::memcpy(lane.arriving.pages, lane.buffer, lane.arriving.bytes);
    lane.arriving = {};
    return CUDA_SUCCESS;
  }

  const Driver& driver_;
  std::byte* buffer_ = nullptr;
  bool registered_ = false;
  std::array<Lane, 2> lanes_;
  size_t next_ = 0;
};

// Whatever the program captures meanwhile.
CUresult copy_some(const Driver& driver, CUcontext context, const std::vector<AwayPiece>& pieces,
                   std::atomic<size_t>* next, bool to_device) {
  if (const CUresult result = driver.cuCtxSetCurrent(context)) return result;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  AwayCopier copier(driver);
  CUresult result = copier.prepare();
  for (size_t at = (*next)++; result == CUDA_SUCCESS && at < pieces.size(); at = (*next)++) {
    result = copier.add(pieces[at], to_device);
  }
  const CUresult ended = copier.finish();
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  return result == CUDA_SUCCESS ? ended : result;
}

// One after the other by the driver's own buffers, which are there: pages to register would have to be made first.
CUresult copy_few(const Driver& driver, CUcontext context, const std::vector<AwayPiece>& pieces, bool to_device) {
  if (const CUresult result = driver.cuCtxSetCurrent(context)) return result;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  CUstream stream = nullptr;
  CUresult result = driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
  for (const AwayPiece& piece : pieces) {
    if (result != CUDA_SUCCESS) break;
    result = to_device ? driver.cuMemcpyHtoDAsync(piece.address, piece.pages, piece.bytes, stream)
                       : driver.cuMemcpyDtoHAsync(piece.pages, piece.address, piece.bytes, stream);
  }
  if (stream) {
    const CUresult ended = driver.cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) result = ended;
    driver.cuStreamDestroy(stream);
  }
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  return result;
}

}  // namespace

void add_pieces(uint64_t address, std::byte* pages, uint64_t bytes, std::vector<AwayPiece>* pieces) {
  for (uint64_t at = 0; at < bytes; at += kAwayPieceBytes) {
    pieces->push_back({address + at, pages + at, std::min(kAwayPieceBytes, bytes - at)});
  }
}

CUresult copy_pieces(const Driver& driver, CUcontext context, const std::vector<AwayPiece>& pieces, bool to_device) {
  uint64_t bytes = 0;
  for (const AwayPiece& piece : pieces) bytes += piece.bytes;
  if (bytes <= kFewBytes) return copy_few(driver, context, pieces, to_device);
  const unsigned cores = std::max(std::thread::hardware_concurrency(), 1u);
  const size_t count = std::min<size_t>({cores, kCopyThreadsMost, bytes / kFewBytes});
  std::vector<CUresult> results(count, CUDA_SUCCESS);
  std::vector<std::thread> threads;
  std::atomic<size_t> next{0};
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { results[i] = copy_some(driver, context, pieces, &next, to_device); });
  }
  for (std::thread& thread : threads) thread.join();
  const auto failed = std::find_if(results.begin(), results.end(), [](CUresult one) { return one != CUDA_SUCCESS; });
  return failed == results.end() ? CUDA_SUCCESS : *failed;
}

}  // namespace bandsaw::cuda
