#include <cstring>

#include "backend/runner/execution/box_cutter.h"
#include "backend/runner/handlers/copies.h"
#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {

using wire::HandleKind;

CUresult Handlers::memory_alloc(C call, uint64_t size, uint64_t* address) {
  const CUresult result = size != 0 ? device_.memory_alloc(call.context, size, address) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) world_.slicer.allocated(*address, size);
  return result;
}

void Handlers::memory_free(C, uint64_t address, wire::Answer answer) {
  withdraw(address);
  world_.slicer.freed(address);
  device_.memory_free(address, answer);
}

CUresult Handlers::managed_add(C call, uint64_t address, uint64_t size) {
  const GuestSpan span = world_.memory.find(address, size, Access::kWrite, true);
  if (size == 0 || !span || !world_.memory.window().contains(address, size)) return CUDA_ERROR_INVALID_VALUE;
  return device_.managed_add(call.context, address, size);
}

void Handlers::managed_remove(C, uint64_t address, wire::Answer answer) { device_.managed_remove(address, answer); }

void Handlers::settle(C, wire::Answer answer) { device_.settle(answer); }

CUresult Handlers::pool_create(C, const vgpu_pool_props& props, uint64_t* pool) {
  PoolRef made;
  const CUresult result = device_.pool_create(props, &made);
  return result == CUDA_SUCCESS ? give(HandleKind::kPool, std::move(made), 0, pool, true) : result;
}

CUresult Handlers::pool_default(C, uint64_t* pool) {
  PoolRef found;
  const CUresult result = device_.pool_default(&found);
  return result == CUDA_SUCCESS ? give(HandleKind::kPool, std::move(found), 0, pool, true) : result;
}

CUresult Handlers::pool_destroy(C, R<Pool> pool) {
  // Its memory goes with the last allocation, which holds the object too. CUDA does not destroy the default pool.
  PoolRef own;
  if (device_.pool_default(&own) == CUDA_SUCCESS && own == pool.object) return CUDA_ERROR_INVALID_VALUE;
  return table().remove(HandleKind::kPool, pool.handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handlers::pool_trim(C, R<Pool> pool, uint64_t keep) { return device_.pool_trim(pool, keep); }

CUresult Handlers::pool_get_attribute(C, R<Pool> pool, uint32_t attribute, uint64_t* value) {
  return device_.pool_get_attribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
}

CUresult Handlers::pool_set_attribute(C, R<Pool> pool, uint32_t attribute, uint64_t value) {
  return device_.pool_set_attribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
}

CUresult Handlers::memory_alloc_async(C, R<Pool> pool, uint64_t size, R<Stream> stream, uint64_t* address) {
  return size != 0 ? device_.memory_alloc_async(stream, pool, size, address) : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handlers::memory_free_async(C, uint64_t address, R<Stream> stream) {
  withdraw(address);
  return device_.memory_free_async(stream, address);
}

CUresult Handlers::copy(C call, const vgpu_copy& copy, R<Stream> stream, const vgpu_done& done) {
  Copy resolved;
  CopyHolds holds;
  const CUresult result = resolve_copy(table(), world_.memory, copy, &resolved, &holds);
  if (result != CUDA_SUCCESS) return result;
  if (copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0) {
    finish_async(*ring_of(call), done, CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  world_.slicer.copied(stream_key(stream.handle, call.ring));
  resolved.awaited = done.token != 0 && (done.slot & VGPU_DONE_AWAITED) != 0;
  // Nobody waits for a copy between pieces of device memory that names no done word.
  const bool watched = done.token != 0 || holds.destination || holds.source;
  const bool cut = is_cut(stream);
  if (!watched && !cut) return device_.copy(stream, resolved, nullptr);
  auto finish = [ring = ring_of(call), done, holds = std::move(holds)](CUresult outcome) mutable {
    holds = {};  // first: who sees the done word may drop the region
    finish_async(*ring, done, outcome);
  };
  if (!cut) return device_.copy(stream, resolved, std::move(finish));
  auto cutter = std::make_shared<CopyCutter>(resolved);
  const auto issue = [this, cutter, to = stream.object](uint64_t most, Done ended) {
    return device_.copy(to, cutter->next(most), std::move(ended));
  };
  return begin_pieces(call, stream, issue, [cutter] { return cutter->left(); }, std::move(finish));
}

// The record's work is larger than what has passed the gate. A node of a graph is not cut.
bool Handlers::is_cut(const StreamRef& stream) { return world_.pieces.is_cut() && !is_capturing(stream); }

CUresult Handlers::begin_pieces(C call, R<Stream> stream, CopyPieces::Issue issue, std::function<uint64_t()> left,
                                Done done) {
  const uint64_t key = stream_key(stream.handle, call.ring);
  return world_.pieces.begin({ring_of(call), key, std::move(issue), std::move(left), std::move(done)});
}

CUresult Handlers::copy_in(C call, uint64_t destination, R<Stream> stream, Bytes data) {
  if (data.empty()) return CUDA_SUCCESS;
  // A captured copy reads its source at each launch; these bytes are gone by then.
  if (is_capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Copy copy;
  RegionRef hold;
  const CUresult result =
      resolve_device(world_.memory, destination, data.size(), Access::kWrite, &copy.destination, &hold);
  if (result != CUDA_SUCCESS) return result;
  auto bytes = std::make_shared<std::vector<std::byte>>(data.begin(), data.end());
  copy.source.address = reinterpret_cast<uint64_t>(bytes->data());
  copy.source.host = true;
  copy.width_bytes = data.size();
  return device_.copy(stream, copy, [ring = ring_of(call), bytes, hold = std::move(hold)](CUresult outcome) {
    finish_async(*ring, {}, outcome);
  });
}

void Handlers::copy_out(C, uint64_t source, uint64_t size, R<Stream> stream, wire::CopyOutAnswer answer) {
  if (size > VGPU_INLINE_BYTES_MAX) return answer(CUDA_ERROR_INVALID_VALUE);
  if (size == 0) return answer(CUDA_SUCCESS, std::string_view());
  if (is_capturing(stream)) return answer(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  Copy copy;
  RegionRef hold;
  CUresult result = resolve_device(world_.memory, source, size, Access::kRead, &copy.source, &hold);
  if (result != CUDA_SUCCESS) return answer(result);
  copy.awaited = true;
  auto bytes = std::make_shared<std::string>(size, '\0');
  copy.destination.address = reinterpret_cast<uint64_t>(bytes->data());
  copy.destination.host = true;
  copy.width_bytes = size;
  result = device_.copy(stream, copy, [answer, bytes, hold = std::move(hold)](CUresult outcome) {
    outcome == CUDA_SUCCESS ? answer(outcome, *bytes) : answer(outcome);
  });
  if (result != CUDA_SUCCESS) answer(result);
}

CUresult Handlers::fill(C call, const vgpu_fill& fill, R<Stream> stream, const vgpu_done& done) {
  RegionRef hold;
  const CUresult result = resolve_fill(world_.memory, fill, &hold);
  if (result != CUDA_SUCCESS) return result;
  if (fill.width == 0 || fill.height == 0) {
    finish_async(*ring_of(call), done, CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  const bool cut = is_cut(stream);
  if (done.token == 0 && !hold && !cut) return device_.fill(stream, fill, nullptr);
  auto finish = [ring = ring_of(call), done, hold = std::move(hold)](CUresult outcome) mutable {
    hold = nullptr;
    finish_async(*ring, done, outcome);
  };
  if (!cut) return device_.fill(stream, fill, std::move(finish));
  auto cutter = std::make_shared<FillCutter>(fill);
  const auto issue = [this, cutter, to = stream.object](uint64_t most, Done ended) {
    return device_.fill(to, cutter->next(most), std::move(ended));
  };
  return begin_pieces(call, stream, issue, [cutter] { return cutter->left(); }, std::move(finish));
}

}  // namespace bandsaw::runner
