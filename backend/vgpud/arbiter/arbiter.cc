#include "backend/vgpud/arbiter/arbiter.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "backend/control/packet.h"
#include "backend/vgpud/arbiter/arbiter_core.h"
#include "memory/base/clock.h"
#include "memory/base/eventfd.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

using sched::Time;

// The memory of a session's gates, and the doorbell that says when to read it.
class GateMemory {
 public:
  static Result<std::unique_ptr<GateMemory>> receive(int socket);
  ~GateMemory() { ::munmap(memory_, bytes_); }
  GateMemory(const GateMemory&) = delete;

  GrantPage* grant_page() { return reinterpret_cast<GrantPage*>(static_cast<char*>(memory_) + offset_); }
  int doorbell() const { return doorbell_.get(); }

 private:
  GateMemory(UniqueFd doorbell, void* memory, const GateHello& hello)
      : doorbell_(std::move(doorbell)),
        memory_(memory),
        bytes_(hello.usage_page_bytes),
        offset_(hello.grant_page_offset) {}
  UniqueFd doorbell_;
  void* memory_;
  uint64_t bytes_, offset_;
};

Result<std::unique_ptr<GateMemory>> GateMemory::receive(int socket) {
  GateHello hello;
  std::vector<UniqueFd> fds;
  auto length = receive_packet(socket, std::as_writable_bytes(std::span(&hello, 1)), &fds);
  if (!length.ok()) return length.status();
  if (length.value() != sizeof hello || fds.size() != 2)
    return Status::error(EPROTO, "the session's greeting is wrong");
  // Sealed by who made it: nobody can take the pages away from under us.
  struct stat info{};
  if (::fstat(fds[0].get(), &info) != 0) return Status::system("the usage page");
  const int seals = ::fcntl(fds[0].get(), F_GET_SEALS);
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || bytes < hello.usage_page_bytes ||
      hello.usage_page_bytes < sizeof(GrantPage) ||
      hello.grant_page_offset > hello.usage_page_bytes - sizeof(GrantPage) ||
      hello.grant_page_offset % alignof(GrantPage) != 0) {
    return Status::error(EPROTO, "the session's usage page is not as it should be");
  }
  void* memory = ::mmap(nullptr, hello.usage_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0].get(), 0);
  if (memory == MAP_FAILED) return Status::system("mapping the usage page");
  return std::unique_ptr<GateMemory>(new GateMemory(std::move(fds[1]), memory, hello));
}

class ArbiterThread final : public Arbiter {
 public:
  ArbiterThread(const ArbiterOptions& options, UniqueFd poll, UniqueFd poke)
      : core_(options), poll_(std::move(poll)), poke_(std::move(poke)) {
    watch(poke_.get(), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~ArbiterThread() override {
    stop_ = true;
    poke();
    thread_.join();
  }

  Status add(const std::string& vgpu, const EngineShares& shares) override {
    return change([&](Time now) { return core_.add(vgpu, shares, now); });
  }
  Status set_shares(const std::string& vgpu, const EngineShares& shares) override {
    return change([&](Time now) { return core_.set_shares(vgpu, shares, now); });
  }
  void remove(const std::string& vgpu) override {
    std::lock_guard lock(mutex_);
    core_.remove(vgpu, monotonic_ns());
    disconnect(vgpu);
    poke();
  }
  void set_sharing(const std::string& vgpu, Sharing sharing) override {
    std::lock_guard lock(mutex_);
    core_.set_sharing(vgpu, sharing);
    poke();
  }
  void set_latency(const std::string& vgpu, int64_t latency_ns) override {
    std::lock_guard lock(mutex_);
    core_.set_latency(vgpu, latency_ns);
    poke();
  }
  void set_sm_part(const std::string& vgpu, double part) override {
    std::lock_guard lock(mutex_);
    core_.set_sm_part(vgpu, part);
    poke();
  }
  void set_planning_mode(PlanningMode mode) override {
    std::lock_guard lock(mutex_);
    core_.set_planning_mode(mode, monotonic_ns());
    poke();
  }
  Status set_policy(const std::string& policy, sched::QueueModel model) override {
    if (!ArbiterCore::knows_policy(policy)) return Status::error(EINVAL, "no policy '{}'", policy);
    return change([&](Time now) {
      core_.set_policy(policy, model, now);
      return Status();
    });
  }
  ArbiterOptions options() const override {
    std::lock_guard lock(mutex_);
    return core_.options();
  }
  void connect(const std::string& vgpu, UniqueFd socket) override {
    ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
    std::lock_guard lock(mutex_);
    disconnect(vgpu);
    const uint32_t number = next_session_++;
    watch(socket.get(), tag(number, false));
    sessions_[number] = {vgpu, std::move(socket), nullptr};
  }

  std::vector<VgpuUse> use() const override {
    std::lock_guard lock(mutex_);
    return core_.use();
  }
  PlanState plan() const override {
    std::lock_guard lock(mutex_);
    return core_.plan();
  }
  void start_trace() override {
    std::lock_guard lock(mutex_);
    core_.start_trace();
  }
  std::vector<TimeSliceRecord> take_trace(uint64_t* lost) override {
    std::lock_guard lock(mutex_);
    return core_.take_trace(lost);
  }

 private:
  struct Session {
    std::string vgpu;
    UniqueFd socket;
    std::unique_ptr<GateMemory> gates;  // null before the session has greeted
  };
  // What an event is about: a session's number and whether it is its doorbell.
  static uint64_t tag(uint32_t session, bool doorbell) { return uint64_t{session} * 2 + (doorbell ? 1 : 0) + 2; }

  template <typename Change>
  Status change(const Change& body) {
    std::lock_guard lock(mutex_);
    Status status = body(monotonic_ns());
    poke();
    return status;
  }
  void watch(int fd, uint64_t what) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = what}};
    ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  void poke() { signal_event(poke_.get()); }
  void disconnect(const std::string& vgpu);
  void greeted(uint32_t number, Time now);
  void on_event(uint64_t what, Time now);
  void run();

  mutable std::mutex mutex_;  // guards all below but what the thread alone has
  ArbiterCore core_;
  std::map<uint32_t, Session> sessions_;
  uint32_t next_session_ = 0;
  const UniqueFd poll_, poke_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The session holds the doorbell too, so closing ours would not take it out of the poll.
void ArbiterThread::disconnect(const std::string& vgpu) {
  for (auto session = sessions_.begin(); session != sessions_.end();) {
    if (session->second.vgpu != vgpu) {
      ++session;
      continue;
    }
    core_.detach(vgpu, monotonic_ns());
    if (const auto& gates = session->second.gates) {
      ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, gates->doorbell(), nullptr);
    }
    session = sessions_.erase(session);
  }
}

void ArbiterThread::greeted(uint32_t number, Time now) {
  Session& session = sessions_[number];
  auto gates = GateMemory::receive(session.socket.get());
  if (!gates.ok()) {
    log::error("{}: no gates, so its shares do not hold: {}", session.vgpu, gates.status().message());
    return disconnect(std::string(session.vgpu));
  }
  session.gates = std::move(gates.value());
  core_.attach(session.vgpu, session.gates->grant_page(), now);
  watch(session.gates->doorbell(), tag(number, true));
}

void ArbiterThread::on_event(uint64_t what, Time now) {
  if (what == 0) return static_cast<void>(drain_event(poke_.get()));
  const auto number = static_cast<uint32_t>((what - 2) / 2);
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  if (what % 2 != 0) {
    drain_event(session.gates->doorbell());
    return core_.on_pending(session.vgpu, now);
  }
  if (!session.gates) return greeted(number, now);
  log::info("{}: the session has left the arbiter", session.vgpu);
  disconnect(std::string(session.vgpu));
}

void ArbiterThread::run() {
  pthread_setname_np(pthread_self(), "arbiter");
  // While it waits for a processor, engines stand still. What it does at a time is short and bounded.
  const sched_param urgent{.sched_priority = 1};
  if (::pthread_setschedparam(pthread_self(), SCHED_RR, &urgent) != 0) log::debug("the arbiter has no priority");
  Time next = 0;
  while (!stop_) {
    epoll_event events[64];
    const Time wait = next == ArbiterCore::kNever ? sched::kSecond : std::max<Time>(0, next - monotonic_ns());
    const timespec timeout{wait / sched::kSecond, wait % sched::kSecond};
    const int count = ::epoll_pwait2(poll_.get(), events, 64, &timeout, nullptr);
    std::lock_guard lock(mutex_);
    const Time now = monotonic_ns();
    for (int i = 0; i < count; ++i) on_event(events[i].data.u64, now);
    next = core_.run(now);
  }
}

}  // namespace

Result<std::unique_ptr<Arbiter>> Arbiter::start(const ArbiterOptions& options) {
  if (!ArbiterCore::knows_policy(options.policy)) return Status::error(EINVAL, "no policy '{}'", options.policy);
  UniqueFd poll(::epoll_create1(EPOLL_CLOEXEC)), poke(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!poll || !poke) return Status::system("the arbiter's events");
  return std::unique_ptr<Arbiter>(std::make_unique<ArbiterThread>(options, std::move(poll), std::move(poke)));
}

}  // namespace bandsaw
