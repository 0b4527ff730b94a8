// Copies and fills, immediate and captured.
#include "backend/device/soft/array.h"
#include "backend/device/soft/soft_device.h"
#include "backend/device/soft/transfer.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {

// A pointer of this process for a device address: in the window, or host memory that the device sees.
CUresult SoftDevice::resolve(uint64_t address, uint64_t bytes, void** pointer) {
  *pointer = nullptr;
  if (bytes == 0) return CUDA_SUCCESS;
  if (memory_->accessible(address, bytes) || reservations_.covers(address, bytes)) {
    *pointer = reinterpret_cast<void*>(address);
  } else if (address - config_.window_base >= VGPU_WINDOW_BYTES) {
    *pointer = host_->visible_host(address, bytes);
  }
  return *pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SoftDevice::make_copy(const SoftContextRef& context, int priority, const Copy& copy, OpRef* op) {
  Transfer transfer;
  transfer.width = copy.width_bytes;
  transfer.height = copy.height;
  transfer.depth = copy.depth;
  const auto place = [&](const CopyEnd& end, uint64_t* pitch, uint64_t* plane, uint64_t* extent, void** pointer) {
    if (end.array) {
      ArrayBox box;
      const CUresult refused = find_box(as(end.array), copy, end, &box);
      *pitch = box.pitch;
      *plane = box.plane;
      *extent = box.extent;
      *pointer = reinterpret_cast<void*>(box.address);
      return refused;
    }
    if (!copy_extent(copy, end, extent)) return CUDA_ERROR_INVALID_VALUE;
    *pitch = end.pitch;
    *plane = end.pitch * (end.height ? end.height : copy.height);
    *pointer = reinterpret_cast<void*>(end.address);
    return end.host ? CUDA_SUCCESS : resolve(end.address, *extent, pointer);
  };
  void *to = nullptr, *from = nullptr;
  if (const CUresult refused = place(copy.destination, &transfer.destination_pitch, &transfer.destination_plane,
                                     &transfer.destination_extent, &to)) {
    return refused;
  }
  if (const CUresult refused =
          place(copy.source, &transfer.source_pitch, &transfer.source_plane, &transfer.source_extent, &from)) {
    return refused;
  }
  transfer.destination = static_cast<std::byte*>(to);
  transfer.source = static_cast<const std::byte*>(from);
  if (copy.destination.array) transfer.arrays[0] = as(copy.destination.array).memory;
  if (copy.source.array) transfer.arrays[1] = as(copy.source.array).memory;
  transfer.engine = index_of(engine_of(copy));
  auto work = meters_.work(transfer.engine);
  *op = std::make_shared<TransferOp>(context, transfer, copies_, host_, priority, std::move(work));
  return CUDA_SUCCESS;
}

CUresult SoftDevice::make_fill(const SoftContextRef& context, int priority, const vgpu_fill& fill, OpRef* op) {
  const uint32_t size = fill.element_bytes;
  if (size != 1 && size != 2 && size != 4) return CUDA_ERROR_INVALID_VALUE;
  if (fill.address % size || (fill.height > 1 && fill.pitch % size)) return CUDA_ERROR_INVALID_VALUE;
  Transfer transfer;
  void* to = nullptr;
  if (!fill_extent(fill, &transfer.destination_extent)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = resolve(fill.address, transfer.destination_extent, &to)) return refused;
  transfer.destination = static_cast<std::byte*>(to);
  transfer.width = fill.width * size;
  transfer.height = fill.height;
  transfer.destination_pitch = fill.pitch;
  transfer.destination_plane = fill.pitch * fill.height;
  transfer.element_bytes = size;
  transfer.value = fill.value;
  transfer.engine = kCompute;
  auto work = meters_.work(transfer.engine);
  *op = std::make_shared<TransferOp>(context, transfer, copies_, host_, priority, std::move(work));
  return CUDA_SUCCESS;
}

// Queues the copy or fill, or, while the stream is captured, makes a node of it.
CUresult SoftDevice::transfer(const StreamRef& stream, const NodeContent& content, Done done) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& on = as(stream);
  const bool is_copy = content.type == CU_GRAPH_NODE_TYPE_MEMCPY;
  OpRef op;
  if (const CUresult refused = is_copy ? make_copy(on.context, on.priority, content.copy, &op)
                                       : make_fill(on.context, on.priority, content.fill, &op)) {
    return refused;
  }
  {
    std::unique_lock lock(scheduler_.mutex());
    if (capturing(on)) {
      const CUresult result = capture_node(on, content, nullptr);
      lock.unlock();
      if (!result && done) done(CUDA_SUCCESS);
      return result;
    }
    if (const CUresult refused = check_capture(on)) return refused;
  }
  op->done = std::move(done);
  return enqueue(on, op);
}

CUresult SoftDevice::copy(const StreamRef& stream, const Copy& copy, Done done) {
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  content.copy = copy;
  return transfer(stream, content, std::move(done));
}

CUresult SoftDevice::fill(const StreamRef& stream, const vgpu_fill& fill, Done done) {
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEMSET;
  content.fill = fill;
  return transfer(stream, content, std::move(done));
}

}  // namespace bandsaw::soft
