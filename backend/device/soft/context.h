// Contexts, streams and events of the software device.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/device/device.h"
#include "backend/device/soft/block.h"
#include "backend/device/soft/heap.h"
#include "backend/device/soft/op.h"
#include "backend/device/soft/shared_event.h"
#include "backend/device/soft/texture.h"
#include "memory/share.h"

namespace bandsaw::soft {

class Capture;
class SoftStream;
class LoadedImage;

// Limits that programs set, by CUlimit.
struct Limits {
  uint64_t stack = 1024, printf_fifo = 1 << 20, malloc_heap = 8 << 20;
  uint64_t pending_launches = 2048, fetch_granularity = 64, persisting_l2 = 0;
};

class SoftContext : public Context, public LaunchServices {
 public:
  SoftContext(std::shared_ptr<Memory> memory, DeviceHost* host, uint32_t flags_)
      : flags(flags_), host_(host), heap(std::move(memory), this), textures_share(host), share_(host) {}

  // Counts what the context takes, with `limits` as they are, against the virtual GPU's memory share. False: over it,
  // and nothing has changed. Called with the scheduler's mutex held, or before anybody else has the context.
  bool charge() { return share_.resize(kOwnBytes + limits.printf_fifo); }
  void give_back_charge() { share_.give_back(); }

  const uint32_t flags;
  std::atomic<bool> dead{false};
  // Guarded by the scheduler's mutex.
  uint64_t pending = 0;                            // operations linked and not ended
  std::vector<std::weak_ptr<SoftStream>> streams;  // all but the legacy one
  std::shared_ptr<SoftStream> legacy;
  std::vector<std::shared_ptr<Capture>> captures;
  Limits limits;

 private:
  DeviceHost* const host_;

 public:
  Heap heap;

  // Code loaded for this context: of libraries, by image, and of modules; guarded by code_mutex.
  std::mutex code_mutex;
  std::map<const void*, std::shared_ptr<LoadedImage>> images;
  std::vector<std::weak_ptr<LoadedImage>> module_images;

  // Textures and surfaces. The mutex is held while one is added, and guards what the table takes of the share.
  TextureTable textures;
  std::mutex textures_mutex;
  Charge<DeviceHost> textures_share;

  // LaunchServices.
  void print(std::string text) override;
  uint64_t heap_alloc(uint64_t bytes) override { return heap.allocate(bytes); }
  void heap_free(uint64_t address) override { heap.release(address); }
  void* visible_host(uint64_t address, uint64_t bytes) override { return host_->visible_host(address, bytes); }

  // Hands over what kernels printed. After a launch, before what follows it begins.
  void flush_output();

 private:
  std::mutex output_mutex_;
  std::vector<std::string> output_;  // whole calls; the oldest go when the FIFO is full
  size_t output_first_ = 0;
  std::atomic<uint64_t> output_bytes_{0};

  // Its streams' and its own bookkeeping fits in a page; the malloc heap counts by itself when it is made.
  static constexpr uint64_t kOwnBytes = 4096;
  Charge<DeviceHost> share_;  // guarded by the scheduler's mutex
};

using SoftContextRef = std::shared_ptr<SoftContext>;

class SoftStream : public Stream, public std::enable_shared_from_this<SoftStream> {
 public:
  SoftStream(SoftContextRef context_, uint64_t id_, uint32_t flags_, int priority_, bool legacy_, uint32_t sms_ = 0)
      : context(std::move(context_)), id(id_), flags(flags_), priority(priority_), legacy(legacy_), sms(sms_) {}

  const SoftContextRef context;
  const uint64_t id;
  const uint32_t flags;
  const int priority;
  const bool legacy;
  const uint32_t sms;  // that its kernels run on; 0: all
  bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }

  // Guarded by the scheduler's mutex.
  OpRef tail;  // the last operation
  bool destroyed = false;
  std::shared_ptr<Capture> capture;
  std::vector<NodeRef> capture_dependencies;
};

class SoftEvent : public Event, public std::enable_shared_from_this<SoftEvent> {
 public:
  SoftEvent(SoftContextRef context_, uint32_t flags_) : context(std::move(context_)), flags(flags_) {}
  const SoftContextRef context;
  const uint32_t flags;
  // Guarded by the scheduler's mutex.
  std::shared_ptr<RecordOp> record;     // of the last event_record
  std::shared_ptr<SharedEvent> shared;  // of an interprocess event
  uint64_t own_record = 0;              // the number of the last one of this process in `shared`
  std::shared_ptr<Capture> capture;     // the last record was captured
  std::vector<NodeRef> capture_dependencies;
};

inline SoftContextRef as(const ContextRef& context) { return std::static_pointer_cast<SoftContext>(context); }
inline SoftStream& as(const StreamRef& stream) { return static_cast<SoftStream&>(*stream); }
inline SoftEvent& as(const EventRef& event) { return static_cast<SoftEvent&>(*event); }

}  // namespace bandsaw::soft
