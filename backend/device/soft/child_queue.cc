// The order of what a grid's threads queue, and the places for their parameters.
#include <algorithm>
#include <cstring>

#include "backend/device/soft/child_work.h"
#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

namespace {

// Streams that have no handle (cuda_runtime_api.h, cuda_device_runtime_api.h).
// 0 and 1 are the legacy stream, here the block's own.
constexpr uint64_t kThreadStream = 2, kTailStream = 3, kFireAndForget = 4;
constexpr uint64_t kFirstHandle = 0x5354'0000'0000'0000;  // of streams and events
constexpr uint64_t kBlockChains = 0x8000'0000'0000'0000;  // of blocks' own streams, by block
constexpr size_t kHandlesMost = 65536;
constexpr uint64_t kPlaceUnit = 256, kPieceBytes = 64 * 1024;  // of parameters' places
constexpr uint64_t kItemBytes = 1024;                          // about, of this process's memory
constexpr uint64_t kChargeStep = 1 << 20;

}  // namespace

// Device code has streams that wait for no other, and events without times.
ChildWork::Error ChildWork::make_handle(bool stream, const uint64_t* words, DeviceAnswer* answer) {
  const uint32_t wanted = stream ? uint32_t{CU_STREAM_NON_BLOCKING} : uint32_t{CU_EVENT_DISABLE_TIMING};
  if (words[1] != wanted) return kInvalidValue;
  if (streams_.size() + events_.size() >= kHandlesMost) return kNoMemory;
  const uint64_t handle = kFirstHandle + next_handle_++;
  if (stream) {
    streams_.insert(handle);
  } else {
    events_[handle];
  }
  answer->to = words[0];
  answer->bytes = sizeof(handle);
  std::memcpy(answer->data, &handle, sizeof(handle));
  return kOk;
}

ChildWork::Error ChildWork::order(uint64_t block, DeviceCall call, const uint64_t* words) {
  const bool record = call == DeviceCall::kEventRecord;
  const auto event = events_.find(words[record ? 0 : 1]);
  uint64_t chain = 0;
  if (event == events_.end()) return kInvalidHandle;
  if (const Error error = chain_of(block, words[record ? 1 : 0], &chain)) return error;
  if (chain == kTailStream || chain == kFireAndForget) return kInvalidValue;
  std::vector<uint32_t>& after = chains_[chain];
  if (record) {
    event->second = after;
    return kOk;
  }
  after.insert(after.end(), event->second.begin(), event->second.end());
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  return kOk;
}

ChildWork::Error ChildWork::chain_of(uint64_t block, uint64_t stream, uint64_t* chain) const {
  *chain = stream;
  if (stream == kTailStream || stream == kFireAndForget) return kOk;
  if (stream <= kThreadStream) {
    *chain = kBlockChains + block;
    return kOk;
  }
  return streams_.contains(stream) ? kOk : kInvalidHandle;
}

FunctionRef ChildWork::function_at(uint64_t address) {
  FunctionRef& known = functions_[address];
  if (known) return known;
  const auto loaded = std::static_pointer_cast<LoadedImage>(parent_.code);
  const std::string name = loaded->kernel_at(address);
  auto made = std::make_shared<SoftFunction>();
  if (name.empty() || loaded->image()->kernel(name, &made->code)) {
    functions_.erase(address);
    return nullptr;
  }
  made->image = loaded->image();
  made->loaded = loaded;
  made->context = parent_.context;
  return known = made;
}

// Steps, so that not every launch asks the share's owner.
bool ChildWork::charge(uint64_t bytes) {
  taken_ += bytes;
  if (taken_ <= share_.bytes()) return true;
  if (share_.resize((taken_ + kChargeStep - 1) / kChargeStep * kChargeStep)) return true;
  taken_ -= bytes;
  return false;
}

uint64_t ChildWork::take_place(uint64_t bytes) {
  bytes = std::max<uint64_t>((bytes + kPlaceUnit - 1) / kPlaceUnit, 1) * kPlaceUnit;
  uint64_t address = 0;
  if (std::vector<uint64_t>& unused = unused_[bytes]; !unused.empty()) {
    address = unused.back();
    unused.pop_back();
  } else {
    if (place_left_ < bytes) {
      uint64_t piece = 0;
      if (device_.memory()->allocate(kPieceBytes, Use::kPrivate, this, &piece)) return 0;
      place_ = piece;
      place_left_ = kPieceBytes;
    }
    address = place_;
    place_ += bytes;
    place_left_ -= bytes;
  }
  buffers_[address].bytes = bytes;
  return address;
}

ChildWork::Error ChildWork::launch(uint64_t block, uint64_t stream, uint64_t address, const FunctionRef& function,
                                   const Shape* shape) {
  const auto found = buffers_.find(address);
  if (found == buffers_.end()) return kInvalidValue;
  const Buffer buffer = std::move(found->second);
  buffers_.erase(found);
  unused_[buffer.bytes].push_back(address);
  const FunctionRef& target = function ? function : buffer.function;
  if (!target) return kInvalidValue;
  const uint32_t bytes = static_cast<SoftFunction&>(*target).code->parameter_bytes;
  if (bytes > buffer.bytes) return kInvalidValue;
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_KERNEL;
  content.parameter_bytes.resize(bytes);
  std::memcpy(content.parameter_bytes.data(), reinterpret_cast<const void*>(address), bytes);  // pages of this object's
  const Shape& of = shape ? *shape : buffer.shape;
  content.launch.code.function = target;
  std::copy(std::begin(of.grid), std::end(of.grid), content.launch.grid);
  std::copy(std::begin(of.block), std::end(of.block), content.launch.block);
  content.launch.shared_bytes = of.shared_bytes;
  content.launch.parameters = content.parameter_bytes;
  if (stream != kTailStream && parent_.depth >= kDeepestLaunch) return kMaxDepth;
  if (device_.check_child(content.launch)) return kInvalidConfiguration;
  return append(block, stream, std::move(content));
}

ChildWork::Error ChildWork::copy(uint64_t block, DeviceCall call, const uint64_t* words) {
  const bool rows = call == DeviceCall::kCopyRows;
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  Copy& copy = content.copy;
  copy.destination.address = words[0];
  copy.source.address = words[rows ? 2 : 1];
  copy.width_bytes = words[rows ? 4 : 2];
  if (rows) {
    copy.destination.pitch = words[1];
    copy.source.pitch = words[3];
    copy.height = words[5];
    if (copy.width_bytes > std::min(words[1], words[3])) return kInvalidValue;
  }
  if (copy.width_bytes == 0 || copy.height == 0) return kOk;
  return append(block, words[rows ? 7 : 4], std::move(content));
}

// Planes that follow each other without a gap are rows of one.
ChildWork::Error ChildWork::fill(uint64_t block, DeviceCall call, const uint64_t* words) {
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEMSET;
  vgpu_fill& fill = content.fill;
  fill.address = words[0];
  fill.element_bytes = 1;
  fill.height = 1;
  uint64_t stream = words[3];
  if (call == DeviceCall::kFill) {
    fill.value = words[1] & 0xff;
    fill.width = words[2];
  } else if (call == DeviceCall::kFillRows) {
    fill.pitch = words[1];
    fill.value = words[2] & 0xff;
    fill.width = words[3];
    fill.height = words[4];
    stream = words[5];
  } else {
    const uint64_t plane_rows = words[3], rows = words[6], planes = words[7];
    if (planes > 1 && plane_rows != rows) return kInvalidValue;
    fill.pitch = words[1];
    fill.value = words[4] & 0xff;
    fill.width = words[5];
    if (__builtin_mul_overflow(rows, planes, &fill.height)) return kInvalidValue;
    stream = words[8];
  }
  if (fill.height > 1 && fill.width > fill.pitch) return kInvalidValue;
  if (fill.width == 0 || fill.height == 0) return kOk;
  return append(block, stream, std::move(content));
}

ChildWork::Error ChildWork::append(uint64_t block, uint64_t stream, NodeContent content) {
  uint64_t chain = 0;
  if (const Error error = chain_of(block, stream, &chain)) return error;
  if (items.size() + tail.size() >= UINT32_MAX || !charge(kItemBytes + content.parameter_bytes.size())) return kTooMany;
  if (chain == kTailStream) {
    tail.push_back({std::move(content), {}});
    return kOk;
  }
  const auto number = static_cast<uint32_t>(items.size());
  std::vector<uint32_t> after;
  if (chain != kFireAndForget) {
    after = std::move(chains_[chain]);
    chains_[chain] = {number};
  }
  items.push_back({std::move(content), std::move(after)});
  return kOk;
}

}  // namespace bandsaw::soft
