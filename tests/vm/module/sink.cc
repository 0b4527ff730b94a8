// A session's stand-in for tests of the device and of the guest's driver: answers control requests, and on KICK does
// what the guest program (guest.c) checks. Usage: sink SOCKET. Runs until SIGTERM.
#include <event2/event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "guest-driver/uapi/vgpu_ring.h"
#include "hypervisor/vfio_user/server.h"
#include "hypervisor/virtio/device.h"
#include "memory/base/log.h"
#include "tests/vm/module/protocol.h"

namespace bandsaw {
namespace {

struct Ram {
  uint32_t id = 0;
  uint64_t gpa = 0, bytes = 0;
  uint8_t* host = nullptr;
};

struct Shared {
  std::vector<vgpu_segment> segments;
  uint32_t flags = 0;
};

struct Process {
  std::map<uint32_t, Shared> rings, regions;
};

class Sink final : public virtio::DeviceSink {
 public:
  virtio::Device* device = nullptr;

  void on_control(std::vector<uint8_t> request, Reply reply) override {
    if (silent_) return;
    vgpu_ctl_reply answer{};
    answer.status = request.size() < sizeof(vgpu_ctl_header) ? EINVAL : handle(request, answer);
    if (answer.status) log::info("control request refused: {}", answer.status);
    reply(answer);
  }
  void on_ram_added(virtio::RamRegion region) override {
    void* host = mmap(nullptr, region.bytes, PROT_READ | (region.writable ? PROT_WRITE : 0), MAP_SHARED,
                      region.fd.get(), static_cast<off_t>(region.offset));
    if (host == MAP_FAILED) std::abort();
    rams_.push_back({region.id, region.gpa, region.bytes, static_cast<uint8_t*>(host)});
    ++ram_changes_;
  }
  void on_ram_removed(uint32_t id, Done done) override {
    std::erase_if(rams_, [&](const Ram& ram) { return ram.id == id && munmap(ram.host, ram.bytes) == 0; });
    ++ram_changes_;
    done();
  }
  void on_driver_ready() override { log::info("driver ready, time {}, {} RAM changes", ++ready_, ram_changes_); }
  void on_reset(Done done) override {
    log::info("reset with {} processes", processes_.size());
    processes_.clear();
    silent_ = false;
    done();
  }
  void on_connected() override {}
  void on_disconnected() override {
    log::info("disconnected with {} processes", processes_.size());
    processes_.clear();
    for (const Ram& ram : rams_) munmap(ram.host, ram.bytes);
    rams_.clear();
  }

 private:
  uint8_t* at(uint64_t gpa, uint64_t bytes) {
    for (const Ram& ram : rams_)
      if (gpa >= ram.gpa && gpa - ram.gpa < ram.bytes && bytes <= ram.bytes - (gpa - ram.gpa))
        return ram.host + (gpa - ram.gpa);
    return nullptr;
  }

  uint32_t handle(const std::vector<uint8_t>& request, vgpu_ctl_reply& answer) {
    vgpu_ctl_header header;
    std::memcpy(&header, request.data(), sizeof(header));
    if (header.type == VGPU_CTL_CREATE_PROCESS) return create(header.process, request, answer);
    if (header.type == VGPU_CTL_PING) return 0;
    const auto found = processes_.find(header.process);
    if (found == processes_.end()) return ESRCH;
    Process& process = found->second;
    switch (header.type) {
      case VGPU_CTL_DESTROY_PROCESS:
        processes_.erase(found);
        return 0;
      case VGPU_CTL_ADD_RING:
        return add(process.rings, request);
      case VGPU_CTL_ADD_REGION:
        return add(process.regions, request);
      case VGPU_CTL_DROP_RING:
        return drop(process.rings, request);
      case VGPU_CTL_DROP_REGION:
        return drop(process.regions, request);
      case VGPU_CTL_KICK:
        return kick(header.process, process);
      default:
        return EINVAL;
    }
  }

  uint32_t create(uint32_t id, const std::vector<uint8_t>& request, vgpu_ctl_reply& answer) {
    vgpu_ctl_create_process create{};
    if (request.size() != sizeof(create)) return EINVAL;
    std::memcpy(&create, request.data(), sizeof(create));
    std::memset(&answer.schema, kHostSchemaByte, sizeof(answer.schema));
    if (std::memcmp(&create.schema, &answer.schema, sizeof(answer.schema)) != 0) return EPROTO;
    if (!processes_.try_emplace(id).second) return EEXIST;
    answer.value = VGPU_WINDOW_BASE_0;
    return 0;
  }

  uint32_t add(std::map<uint32_t, Shared>& table, const std::vector<uint8_t>& request) {
    vgpu_ctl_add_region add{};
    if (request.size() < sizeof(add)) return EINVAL;
    std::memcpy(&add, request.data(), sizeof(add));
    const uint64_t tail = request.size() - sizeof(add);
    if (tail != uint64_t{add.segments} * sizeof(vgpu_segment)) return EINVAL;
    Shared shared{std::vector<vgpu_segment>(add.segments), add.flags};
    std::memcpy(shared.segments.data(), request.data() + sizeof(add), tail);
    uint64_t sum = 0;
    for (const vgpu_segment& segment : shared.segments) {
      sum += segment.bytes;
      if (!at(segment.address, segment.bytes)) return EFAULT;
    }
    if (sum != add.bytes) return EINVAL;
    return table.try_emplace(add.id, std::move(shared)).second ? 0 : EEXIST;
  }

  uint32_t drop(std::map<uint32_t, Shared>& table, const std::vector<uint8_t>& request) {
    vgpu_ctl_drop drop{};
    if (request.size() != sizeof(drop)) return EINVAL;
    std::memcpy(&drop, request.data(), sizeof(drop));
    return table.erase(drop.id) ? 0 : ENOENT;
  }

  // A ring's bytes by offset; its pages need not be contiguous.
  uint8_t* ring_at(const Shared& ring, uint64_t offset, uint64_t bytes) {
    for (const vgpu_segment& segment : ring.segments) {
      if (offset < segment.bytes) return at(segment.address + offset, bytes);
      offset -= segment.bytes;
    }
    return nullptr;
  }

  uint32_t kick(uint32_t id, Process& process) {
    const auto ring = process.rings.find(0);
    if (ring == process.rings.end()) return ENOENT;
    auto* header = reinterpret_cast<vgpu_ring_header*>(ring_at(ring->second, 0, sizeof(vgpu_ring_header)));
    auto* result = reinterpret_cast<KickResult*>(ring_at(ring->second, VGPU_RING_REPLY_OFFSET, sizeof(KickResult)));
    if (header->reserved0 == kCommandLose) {
      device->post_event(VGPU_EVENT_PROCESS_LOST, id);
      return 0;
    }
    if (header->reserved0 == kCommandSilence) silent_ = true;
    if (header->reserved0 == kCommandDie) _exit(3);
    KickResult found{};
    found.processes = static_cast<uint32_t>(processes_.size());
    found.ready = ready_;
    for (const auto& [region_id, region] : process.regions) {
      for (const vgpu_segment& segment : region.segments) visit(region, segment, found);
      found.segments += region.segments.size();
    }
    *result = found;
    header->head = header->tail;
    device->post_event(VGPU_EVENT_WAKE, id);
    return 0;
  }

  void visit(const Shared& region, const vgpu_segment& segment, KickResult& found) {
    uint8_t* host = at(segment.address, segment.bytes);
    if (!host) return;
    for (uint64_t offset = 0; offset < segment.bytes; offset += 4096) {
      uint64_t word = 0;
      std::memcpy(&word, host + offset, sizeof(word));
      found.sum = found.sum * kSumFactor + word;
      if (!(region.flags & VGPU_REGION_READ_ONLY)) std::memcpy(host + offset + 8, &word, sizeof(word));
    }
  }

  std::vector<Ram> rams_;
  std::map<uint32_t, Process> processes_;
  uint32_t ready_ = 0;
  uint32_t ram_changes_ = 0;
  bool silent_ = false;
};

int run(const char* path) {
  std::unique_ptr<event_base, void (*)(event_base*)> base(event_base_new(), event_base_free);
  Sink sink;
  virtio::Device device({.name = "lab0"}, sink);
  sink.device = &device;
  vfio_user::Server server(base.get(), device);
  if (Status status = server.listen(path); !status.ok()) {
    log::error("{}", status.message());
    return 1;
  }
  std::unique_ptr<event, void (*)(event*)> stop(
      evsignal_new(
          base.get(), SIGTERM,
          [](evutil_socket_t, short, void* b) { event_base_loopbreak(static_cast<event_base*>(b)); }, base.get()),
      event_free);
  event_add(stop.get(), nullptr);
  event_base_dispatch(base.get());
  return 0;
}

}  // namespace
}  // namespace bandsaw

int main(int argc, char** argv) {
  bandsaw::start_log("sink");
  return argc == 2 ? bandsaw::run(argv[1]) : 2;
}
