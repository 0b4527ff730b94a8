#include "backend/device/soft/transfer.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "backend/device/soft/fault.h"
#include "backend/device/soft/scheduler.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

constexpr uint64_t kInline = 256 * 1024;   // run by whoever makes it ready
constexpr uint64_t kPiece = 512 << 10;     // of one ticket
constexpr uint64_t kStreaming = 16 << 20;  // beyond the caches: write past them

bool strided_extent(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t plane_rows,
                    uint64_t* bytes) {
  *bytes = 0;
  if (width == 0 || height == 0 || depth == 0) return true;
  if ((height > 1 && pitch < width) || (depth > 1 && plane_rows < height)) return false;
  uint64_t plane = 0, planes = 0, rows = 0;
  if (__builtin_mul_overflow(pitch, plane_rows, &plane) || __builtin_mul_overflow(plane, depth - 1, &planes) ||
      __builtin_mul_overflow(pitch, height - 1, &rows) || __builtin_add_overflow(planes, rows, bytes) ||
      __builtin_add_overflow(*bytes, width, bytes)) {
    return false;
  }
  uint64_t total = 0;
  return !__builtin_mul_overflow(width, height, &total) && !__builtin_mul_overflow(total, depth, &total);
}

// memcpy for data that will not be read from the cache soon.
void stream_bytes(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t head = std::min<uint64_t>(bytes, -reinterpret_cast<uintptr_t>(to) & 63);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= 64; to += 64, from += 64, bytes -= 64) {
    const auto* in = reinterpret_cast<const __m128i*>(from);
    auto* out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();
  std::memcpy(to, from, bytes);
}

void fill_bytes(std::byte* to, uint64_t bytes, uint32_t element_bytes, uint32_t value) {
  if (element_bytes == 1) {
    std::memset(to, static_cast<int>(value), bytes);
  } else if (element_bytes == 2) {
    std::fill_n(reinterpret_cast<uint16_t*>(to), bytes / 2, static_cast<uint16_t>(value));
  } else {
    std::fill_n(reinterpret_cast<uint32_t*>(to), bytes / 4, value);
  }
}

// Contiguous ends need no rows.
Transfer flatten(Transfer transfer) {
  const auto packed = [&](uint64_t pitch, uint64_t plane) {
    return (transfer.height == 1 || pitch == transfer.width) &&
           (transfer.depth == 1 || plane == transfer.width * transfer.height);
  };
  if (packed(transfer.destination_pitch, transfer.destination_plane) &&
      (!transfer.source || packed(transfer.source_pitch, transfer.source_plane))) {
    transfer.width = transfer.bytes();
    transfer.height = transfer.depth = 1;
  }
  return transfer;
}

// A part of a transfer: rows [first, last), or bytes of the single row.
struct Piece {
  const Transfer* transfer;
  uint64_t first, last;
  bool streaming;
};

void run_piece(void* argument) {
  const Piece& piece = *static_cast<const Piece*>(argument);
  const Transfer& transfer = *piece.transfer;
  const auto move = [&](std::byte* to, const std::byte* from, uint64_t bytes) {
    if (!transfer.source) {
      fill_bytes(to, bytes, transfer.element_bytes, transfer.value);
    } else if (piece.streaming) {
      stream_bytes(to, from, bytes);
    } else {
      std::memmove(to, from, bytes);
    }
  };
  if (transfer.height == 1 && transfer.depth == 1) {
    move(transfer.destination + piece.first, transfer.source + piece.first, piece.last - piece.first);
    return;
  }
  for (uint64_t row = piece.first; row < piece.last; ++row) {
    const uint64_t plane = row / transfer.height, y = row % transfer.height;
    move(transfer.destination + plane * transfer.destination_plane + y * transfer.destination_pitch,
         transfer.source + plane * transfer.source_plane + y * transfer.source_pitch, transfer.width);
  }
}

bool run_guarded_piece(Piece piece) {
  const Transfer& transfer = *piece.transfer;
  const GuardedRange ranges[2] = {{reinterpret_cast<uint64_t>(transfer.destination), transfer.destination_extent},
                                  {reinterpret_cast<uint64_t>(transfer.source), transfer.source_extent}};
  uint64_t address = 0;
  if (run_guarded(ranges, run_piece, &piece, &address)) return true;
  log::error("copy or fill: illegal address {:#x}", address);
  return false;
}

// How a transfer is cut: by bytes if it is one row, else by rows.
uint64_t piece_units(const Transfer& transfer) {
  if (transfer.height == 1 && transfer.depth == 1) return kPiece;
  return std::max<uint64_t>(1, kPiece / transfer.width);
}

uint64_t units(const Transfer& transfer) {
  return transfer.height == 1 && transfer.depth == 1 ? transfer.width : transfer.height * transfer.depth;
}

class TransferJob : public Job {
 public:
  using Finished = std::function<void(bool ok)>;
  TransferJob(const Transfer& transfer, int priority, Finished finished)
      : Job((units(transfer) + piece_units(transfer) - 1) / piece_units(transfer), priority),
        transfer_(transfer),
        finished_(std::move(finished)) {}

  std::unique_ptr<Share> share(Worker&) override { return std::make_unique<Part>(*this); }
  void finished() override { finished_(ok_); }

 private:
  class Part : public Share {
   public:
    explicit Part(TransferJob& job) : job_(job) {}
    Turn run(Worker& worker) override {
      uint64_t ticket = 0;
      while (!job_.cancelled() && job_.take(1, &ticket)) {
        job_.run_ticket(ticket);
        if (worker.turn_over() && job_.tickets_left()) return Turn::kMore;
      }
      return Turn::kFinished;
    }
    bool holds_work() const override { return false; }

   private:
    TransferJob& job_;
  };

  void run_ticket(uint64_t ticket) {
    const uint64_t step = piece_units(transfer_);
    const uint64_t first = ticket * step, last = std::min(units(transfer_), first + step);
    if (run_guarded_piece({&transfer_, first, last, transfer_.bytes() >= kStreaming})) return;
    ok_ = false;
    set_cancelled();
  }

  const Transfer transfer_;
  Finished finished_;
  std::atomic<bool> ok_{true};
};

}  // namespace

bool copy_extent(const Copy& copy, const CopyEnd& end, uint64_t* bytes) {
  return strided_extent(copy.width_bytes, copy.height, copy.depth, end.pitch, end.height ? end.height : copy.height,
                        bytes);
}

bool fill_extent(const vgpu_fill& fill, uint64_t* bytes) {
  uint64_t width = 0;
  if (__builtin_mul_overflow(fill.width, uint64_t{fill.element_bytes}, &width)) return false;
  return strided_extent(width, fill.height, 1, fill.pitch, fill.height, bytes);
}

TransferOp::TransferOp(std::shared_ptr<SoftContext> context, const Transfer& transfer, Executor& executor,
                       DeviceHost* host, int priority, EngineWork work)
    : StreamOp(std::move(context)),
      transfer_(flatten(transfer)),
      executor_(executor),
      host_(host),
      priority_(priority),
      work_(std::move(work)) {}

void TransferOp::charge() { host_->charge_time(static_cast<int>(transfer_.engine), work_.end(), transfer_.bytes()); }

bool TransferOp::start(Scheduler& scheduler, CUresult* status) {
  const uint64_t bytes = transfer_.bytes();
  if (bytes == 0) {
    work_.release();
    return true;
  }
  work_.begin();
  if (bytes <= kInline) {
    const bool ok = run_guarded_piece({&transfer_, 0, units(transfer_), false});
    charge();
    if (!ok) {
      *status = CUDA_ERROR_ILLEGAL_ADDRESS;
      scheduler.poison(*status);
    }
    return true;
  }
  // The job must not keep the operation when it is never run; it is pushed here, so it runs or is cancelled.
  auto self = std::static_pointer_cast<TransferOp>(shared_from_this());
  job_ = std::make_shared<TransferJob>(transfer_, priority_, [self, &scheduler](bool ok) mutable {
    const CUresult result = ok ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    self->charge();
    if (result) scheduler.poison(result);
    scheduler.finish(std::move(self), result);
  });
  executor_.push(job_);
  return false;
}

void TransferOp::cancel(Scheduler&) {
  if (job_) executor_.cancel(job_);
}

}  // namespace bandsaw::soft
