// A session and runner in one thread of the test program: answers control requests on a direct socket and serves
// rings through the generated decoders. Knows one device, contexts, and nothing else.
#pragma once

#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "guest-driver/uapi/wire_refusing.h"

namespace bandsaw::fake {

// Opcodes of another release: backwards, but for the first. Its own inverse.
inline uint32_t other_opcode(uint32_t opcode) { return opcode == 1 ? 1 : wire::kOpcodes + 1 - opcode; }

class FakeHandlers : public wire::RefusingHandlers {
 public:
  CUresult device_info(const wire::CallContext&, vgpu_device_info* info) override {
    std::strcpy(info->name, "Test device");
    info->uuid[0] = 0xab;
    info->total_bytes = 6ull << 30;
    info->attributes[CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 32;
    return CUDA_SUCCESS;
  }
  CUresult context_create(const wire::CallContext&, uint32_t, uint32_t, uint64_t* context) override {
    *context = uint64_t{static_cast<uint32_t>(wire::HandleKind::kContext)} << 56 | ++contexts;
    return CUDA_SUCCESS;
  }
  CUresult context_destroy(const wire::CallContext&, const wire::Resolved<Context>&) override { return CUDA_SUCCESS; }
  void context_synchronize(const wire::CallContext&, const wire::Resolved<Context>&, wire::Answer answer) override {
    answer(CUDA_SUCCESS);
  }
  CUresult memory_free_async(const wire::CallContext&, uint64_t, const wire::Resolved<Stream>&) override {
    return CUDA_SUCCESS;
  }
  CUresult call_ids(const wire::CallContext&, std::string* ids) override {
    for (uint32_t at = 1; at < wire::kOpcodes; at++) {
      const uint32_t opcode = other_opcodes ? other_opcode(at) : at;
      const bool lacks = other_opcodes && opcode == static_cast<uint32_t>(wire::Opcode::kContextGetLimit);
      const uint64_t id = lacks ? 1 : wire::kIdOfCall[opcode];
      ids->append(reinterpret_cast<const char*>(&id), sizeof(id));
    }
    return CUDA_SUCCESS;
  }
  uint64_t contexts = 0;
  bool other_opcodes = false;
};

class FakeSession : wire::HandleSource {
 public:
  // What distinguishes it from this library's own host.
  struct Differs {
    int minor = 0;               // added to the minor release
    bool other_opcodes = false;  // opcodes in another order (but for call_ids), and no context_get_limit
  };
  FakeSession() : FakeSession(Differs{}) {}
  explicit FakeSession(Differs differs) : differs_(differs) {
    schema_.minor = static_cast<__le16>(schema_.minor + differs.minor);
    if (differs.other_opcodes) schema_.hash[0] ^= 0xff;
    handlers_.other_opcodes = differs.other_opcodes;
    char folder[] = "/tmp/libcuda_test.XXXXXX";
    run_ = mkdtemp(folder);
    std::filesystem::create_directory(run_ + "/test");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (run_ + "/test/direct.sock").c_str());
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(listener_, 4) != 0)
      abort();
    setenv("BANDSAW_RUN", run_.c_str(), 1);
    setenv("BANDSAW_VGPU", "test", 1);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeSession() {
    stop_ = true;
    thread_.join();
    close(listener_);
    std::filesystem::remove_all(run_);
  }
  // From now on a context_synchronize ends the connection instead of being answered.
  std::atomic<bool> die_at_synchronize{false};

 private:
  struct CommandRing : wire::ReplySink {
    void reply(uint64_t seq, CUresult result, std::span<const std::byte> fixed,
               std::span<const std::byte> tail) override {
      char* body = base + VGPU_RING_REPLY_OFFSET;
      if (!fixed.empty()) std::memcpy(body, fixed.data(), fixed.size());
      if (!tail.empty()) std::memcpy(body + fixed.size(), tail.data(), tail.size());
      header().reply_result = result;
      header().reply_bytes = static_cast<uint32_t>(fixed.size() + tail.size());
      std::atomic_ref<__u64>(header().reply_seq).store(seq, std::memory_order_release);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (!std::atomic_ref<__u32>(header().guest_waiting).load()) return;
      std::atomic_ref<__u32>(header().wake).fetch_add(1);
      syscall(SYS_futex, &header().wake, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    }
    vgpu_ring_header& header() { return *reinterpret_cast<vgpu_ring_header*>(base); }
    char* base = nullptr;
    uint64_t head = 0;
  };

  // Every handle is alive.
  std::shared_ptr<Object> find(wire::HandleKind kind, uint64_t) override {
    if (kind == wire::HandleKind::kContext) return std::make_shared<Context>();
    return std::make_shared<Object>();
  }
  StreamRef find_stream(const wire::CallContext&, uint64_t) override { return std::make_shared<Stream>(); }

  void serve() {
    while (!stop_) {
      pollfd entry{listener_, POLLIN, 0};
      if (poll(&entry, 1, 5) != 1) continue;
      connection_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      arena_ = memfd_create("arena", MFD_CLOEXEC);
      if (ftruncate(arena_, VGPU_WINDOW_DEVICE_OFFSET) != 0) abort();
      kick_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
      while (!stop_ && one_turn()) {
      }
      rings_.clear();
      for (int fd : {connection_, arena_, kick_}) close(fd);
    }
  }

  bool one_turn() {
    pollfd entry{connection_, POLLIN, 0};
    if (poll(&entry, 1, 0) == 1 && !answer_request()) return false;
    for (auto& ring : rings_) {
      if (!serve_ring(ring)) return false;
    }
    std::this_thread::yield();
    return true;
  }

  bool answer_request() {
    alignas(8) char bytes[4096];
    const ssize_t length = recv(connection_, bytes, sizeof(bytes), 0);
    if (length < static_cast<ssize_t>(sizeof(vgpu_ctl_header))) return false;
    vgpu_ctl_reply reply{};
    const auto type = reinterpret_cast<const vgpu_ctl_header*>(bytes)->type;
    if (type == VGPU_CTL_CREATE_PROCESS) {
      const auto* create = reinterpret_cast<const vgpu_ctl_create_process*>(bytes);
      reply.schema = schema_;
      if (!wire::work_together(create->schema, schema_)) reply.status = EPROTO;
      reply.value = VGPU_WINDOW_BASE_1;
    } else if (type == VGPU_CTL_ADD_RING) {
      add_ring(reinterpret_cast<const vgpu_segment*>(bytes + sizeof(vgpu_ctl_add_region))->address);
    }
    return send_reply(reply, type == VGPU_CTL_CREATE_PROCESS && reply.status == 0);
  }

  void add_ring(uint64_t offset) {
    auto ring = std::make_shared<CommandRing>();
    ring->base = static_cast<char*>(
        mmap(nullptr, VGPU_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, arena_, static_cast<off_t>(offset)));
    rings_.push_back(ring);
  }

  bool send_reply(const vgpu_ctl_reply& reply, bool with_descriptors) {
    iovec vector{const_cast<vgpu_ctl_reply*>(&reply), sizeof(reply)};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    if (with_descriptors) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(2 * sizeof(int));
      const int descriptors[2] = {arena_, kick_};
      std::memcpy(CMSG_DATA(c), descriptors, sizeof(descriptors));
    }
    return sendmsg(connection_, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(reply));
  }

  bool serve_ring(const std::shared_ptr<CommandRing>& ring) {
    const uint64_t tail = std::atomic_ref<__u64>(ring->header().tail).load(std::memory_order_acquire);
    while (ring->head != tail) {
      char* at = ring->base + VGPU_RING_RECORDS_OFFSET + ring->head % VGPU_RING_RECORDS_BYTES;
      uint32_t front[2];
      std::memcpy(front, at, sizeof(front));
      std::vector<std::byte> record(reinterpret_cast<std::byte*>(at), reinterpret_cast<std::byte*>(at) + front[0]);
      ring->head += front[0];
      std::atomic_ref<__u64>(ring->header().head).store(ring->head, std::memory_order_release);
      if (front[1] == VGPU_OPCODE_PAD) continue;
      if (differs_.other_opcodes) {
        front[1] = other_opcode(front[1]);
        std::memcpy(record.data(), front, sizeof(front));
      }
      wire::CheckedRecord checked;
      if (wire::check(record, &checked)) abort();
      if (checked.opcode == wire::Opcode::kContextSynchronize && die_at_synchronize) return false;
      wire::CallContext call;
      call.sink = ring;
      wire::dispatch(checked, call, *this, handlers_);
    }
    return true;
  }

  const Differs differs_;
  vgpu_schema schema_ = wire::kSchema;
  std::string run_;
  int listener_ = -1, connection_ = -1, arena_ = -1, kick_ = -1;
  std::atomic<bool> stop_{false};
  FakeHandlers handlers_;
  std::vector<std::shared_ptr<CommandRing>> rings_;
  std::thread thread_;
};

}  // namespace bandsaw::fake
