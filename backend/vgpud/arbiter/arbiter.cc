#include "backend/vgpud/arbiter/arbiter.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "backend/control/packet.h"
#include "backend/vgpud/arbiter/arbiter_core.h"
#include "backend/vgpud/arbiter/channel_group_store.h"
#include "backend/vgpud/arbiter/descriptor_kind.h"
#include "backend/vgpud/arbiter/gate_memory.h"
#include "backend/vgpud/arbiter/gate_message.h"
#include "backend/vgpud/arbiter/memory_lending.h"
#include "memory/base/clock.h"
#include "memory/base/eventfd.h"
#include "memory/base/log_about.h"

namespace bandsaw {
namespace {

using sched::Time;

// What an event of the poll is about.
struct EventTag {
  enum Kind : uint32_t { kPoke, kSocket, kDoorbell, kRunner } kind = kPoke;
  uint32_t session = 0, slot = 0;

  uint64_t pack() const { return uint64_t{session} << 32 | slot << 2 | kind; }
  static EventTag unpack(uint64_t packed) {
    const auto low = static_cast<uint32_t>(packed);
    return {static_cast<Kind>(low & 3), static_cast<uint32_t>(packed >> 32), low >> 2};
  }
};

// A session is not read while more than this of what it has handed over is held or waits to be closed: the driver can
// take its time with that, and another thread does it. A packet with descriptors counts two at most.
constexpr long kHandedOverMax = 1024;
constexpr Time kLookAtClosed = 2 * sched::kMillisecond;
// Nothing is waited for: events wake it, and after this long it looks by itself.
constexpr Time kLongestSleep = 30 * sched::kSecond;

// `owner` is held until the groups are gone.
std::shared_ptr<const ChannelGroups> owned_by(std::shared_ptr<const void> owner,
                                              std::unique_ptr<ChannelGroups> groups) {
  struct Owned {
    std::shared_ptr<const void> owner;
    std::unique_ptr<ChannelGroups> groups;
  };
  const auto owned = std::make_shared<Owned>(std::move(owner), std::move(groups));
  return {owned, owned->groups.get()};
}

class ArbiterThread final : public Arbiter {
 public:
  ArbiterThread(const ArbiterOptions& options, UniqueFd poll, UniqueFd poke)
      : core_(options),
        poll_(std::move(poll)),
        poke_(std::move(poke)),
        channel_groups_(poll_.get(), &setter_),
        setter_([this](const TimeSliceOrder& order, const TimeSliceSetter::Target& target,
                       const Status& why) { time_slice_failed(order, target, why); },
                [this](const TimeSliceOrder& order, const TimeSliceSetter::Target& target, uint64_t had_us) {
                  time_slice_changed(order, target, had_us);
                }) {
    watch(poke_.get(), {});
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
    lending_.remove(vgpu);
    failed_.erase(vgpu);
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
  void set_kernel_deadline(const std::string& vgpu, int64_t deadline_ns) override {
    std::lock_guard lock(mutex_);
    core_.set_kernel_deadline(vgpu, deadline_ns);
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
  void set_plan_sms(int sms) override {
    std::lock_guard lock(mutex_);
    core_.set_plan_sms(sms, monotonic_ns());
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
  std::string why_gates() const override {
    std::lock_guard lock(mutex_);
    return core_.why_gates();
  }
  bool shares_by_progress() const override {
    std::lock_guard lock(mutex_);
    return core_.shares_by_progress();
  }
  void connect(const std::string& vgpu, UniqueFd socket) override {
    ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
    std::lock_guard lock(mutex_);
    disconnect(vgpu);
    const uint32_t number = next_session_++;
    watch(socket.get(), {EventTag::kSocket, number});
    sessions_[number] = {vgpu, std::move(socket), nullptr, std::make_shared<char>(), false, false};
  }

  void set_memory(const std::string& vgpu, const std::optional<MemoryTerms>& terms) override {
    std::lock_guard lock(mutex_);
    lending_.set(vgpu, terms);
    poke();
  }
  uint64_t memory_debt() const override {
    std::lock_guard lock(mutex_);
    return lending_.debt();
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
    std::shared_ptr<const void> owner;  // held by all descriptors of it, too, until they are closed
    bool held_up = false;               // it is not read
    bool scolded = false;               // it has sent something impossible, which was logged

    bool hands_over_too_much() const { return owner.use_count() > kHandedOverMax; }
  };

  template <typename Change>
  Status change(const Change& body) {
    std::lock_guard lock(mutex_);
    Status status = body(monotonic_ns());
    poke();
    return status;
  }
  void watch(int fd, EventTag tag, uint32_t how = 0) {
    epoll_event event{.events = EPOLLIN | how, .data = {.u64 = tag.pack()}};
    ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  // Of one that is not read its end is seen still.
  void read(uint32_t number, Session* session, bool whether) {
    session->held_up = !whether;
    epoll_event event{.events = whether ? EPOLLIN : 0u, .data = {.u64 = EventTag{EventTag::kSocket, number}.pack()}};
    ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, session->socket.get(), &event);
  }
  void has_left(const Session& session) {
    log::info(log::About{session.vgpu}, "the session has left the arbiter");
    disconnect(std::string(session.vgpu));
  }
  void poke() { signal_event(poke_.get()); }
  void disconnect(const std::string& vgpu);
  void greeted(uint32_t number, Time now);
  void on_event(EventTag tag, Time now);
  void on_packet(uint32_t number, Time now);
  Status take_packet(uint32_t number, std::span<const std::byte> packet, std::vector<UniqueFd>& fds, Time now);
  void on_runner_end(uint32_t number, uint32_t slot, Time now);
  void carry_out_orders();
  Time lend(Time now);
  Time read_held_up(Time now);
  void end_runner(const RunnerEnd& end);
  TimeSliceSetter::Target channel_groups_of(const TimeSliceOrder& order) const;
  void time_slice_failed(const TimeSliceOrder& order, const TimeSliceSetter::Target& target, const Status& why);
  void time_slice_changed(const TimeSliceOrder& order, const TimeSliceSetter::Target& target, uint64_t had_us);
  void run();

  mutable std::mutex mutex_;  // guards all below but what the thread alone has
  ArbiterCore core_;
  MemoryLending lending_;
  std::map<uint32_t, Session> sessions_;
  uint32_t next_session_ = 0;
  const UniqueFd poll_, poke_;
  std::set<std::string> failed_;  // virtual GPUs of which a failure was logged
  ChannelGroupStore channel_groups_;
  TimeSliceSetter setter_;  // calls time_slice_failed() until it is gone, so it goes before the rest
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
    lending_.detach(vgpu);
    if (const auto& gates = session->second.gates) {
      ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, gates->doorbell(), nullptr);
    }
    channel_groups_.drop_all(session->first);
    session = sessions_.erase(session);
  }
}

void ArbiterThread::greeted(uint32_t number, Time now) {
  Session& session = sessions_[number];
  std::vector<UniqueFd> refused;
  auto gates = GateMemory::receive(session.socket.get(), &refused);
  if (!refused.empty()) setter_.close(std::move(refused), session.owner);
  if (!gates.ok()) {
    log::error(log::About{session.vgpu}, "no gates, so its shares do not hold: {}", gates.status().message());
    return disconnect(std::string(session.vgpu));
  }
  session.gates = std::move(gates.value());
  core_.attach(session.vgpu, session.gates->grant_page(), now);
  if (const UsagePage* page = session.gates->usage_page()) lending_.attach(session.vgpu, page);
  watch(session.gates->doorbell(), {EventTag::kDoorbell, number}, EPOLLET);
}

void ArbiterThread::on_event(EventTag tag, Time now) {
  if (tag.kind == EventTag::kPoke) return static_cast<void>(drain_event(poke_.get()));
  const auto found = sessions_.find(tag.session);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  switch (tag.kind) {
    case EventTag::kDoorbell:
      return core_.on_pending(session.vgpu, now);
    case EventTag::kRunner:
      return on_runner_end(tag.session, tag.slot, now);
    default:
      return session.gates ? on_packet(tag.session, now) : greeted(tag.session, now);
  }
}

void ArbiterThread::on_packet(uint32_t number, Time now) {
  Session& session = sessions_[number];
  if (session.held_up) return has_left(session);  // nothing else is watched
  if (session.hands_over_too_much()) return read(number, &session, false);
  std::byte buffer[sizeof(GateMessage) + 1];
  std::vector<UniqueFd> fds;
  const auto length = receive_packet(session.socket.get(), buffer, &fds);
  if (!length.ok() && length.status().code() == EAGAIN) return;
  const bool lost = !length.ok() && length.status().code() != EMSGSIZE;
  if (lost || (length.ok() && length.value() == 0)) return has_left(session);
  Status status = length.status();
  if (status.ok()) status = take_packet(number, std::span(buffer).first(length.value()), fds, now);
  if (!fds.empty()) setter_.close(std::move(fds), session.owner);
  if (!status.ok() && !std::exchange(session.scolded, true))
    log::warn(log::About{session.vgpu}, "its session has sent what is no use: {}", status.message());
}

// What is of use is taken out of `fds`.
Status ArbiterThread::take_packet(uint32_t number, std::span<const std::byte> packet, std::vector<UniqueFd>& fds,
                                  Time now) {
  const std::string& vgpu = sessions_[number].vgpu;
  const auto message = read_gate_message(packet, fds.size());
  if (!message.ok()) return message.status();
  const uint32_t slot = message.value().slot, count = message.value().channel_groups.count;
  channel_groups_.drop(number, slot);
  if (message.value().type == GateMessageType::kRunnerEnds) {
    core_.forget_channel_groups(vgpu, slot, now);
    return {};
  }
  Status status;
  if (count > 0) {
    auto groups = ChannelGroups::adopt(std::move(fds[0]), message.value().channel_groups);
    status = groups.status();
    if (status.ok() && !is_pidfd(fds[1].get())) status = Status::error(EPROTO, "a runner's pidfd is none");
    if (status.ok()) {
      const EventTag tag{EventTag::kRunner, number, slot};
      auto owned = owned_by(sessions_[number].owner, std::move(groups.value()));
      status = channel_groups_.put(number, slot, std::move(owned), std::move(fds[1]), tag.pack());
    }
  }
  core_.set_channel_groups(vgpu, slot, status.ok() ? count : 0, now);
  log::debug("{}: the runner in slot {} has {} channel groups", vgpu, slot, status.ok() ? count : 0);
  return status;
}

void ArbiterThread::on_runner_end(uint32_t number, uint32_t slot, Time now) {
  if (!channel_groups_.ended(number, slot)) return;
  channel_groups_.drop(number, slot);
  core_.forget_channel_groups(sessions_[number].vgpu, slot, now);
}

TimeSliceSetter::Target ArbiterThread::channel_groups_of(const TimeSliceOrder& order) const {
  for (const auto& [number, session] : sessions_) {
    if (session.vgpu == order.vgpu) return channel_groups_.find(number, order.slot);
  }
  return nullptr;
}

void ArbiterThread::carry_out_orders() {
  for (TimeSliceOrder& order : core_.take_time_slices()) {
    if (auto target = channel_groups_of(order)) setter_.set(std::move(order), std::move(target));
  }
}

// Returns when to look again.
Time ArbiterThread::lend(Time now) {
  const Time next = lending_.review([this](const std::string& vgpu) { return core_.works(vgpu); }, now);
  for (const auto& [vgpu, order] : lending_.take_orders()) {
    for (const auto& [number, session] : sessions_) {
      if (session.vgpu != vgpu) continue;
      const Status status = send_packet(session.socket.get(), std::as_bytes(std::span(&order, 1)), {}, {});
      if (!status.ok()) log::warn(log::About{vgpu}, "its session does not hear what it may hold: {}", status.message());
    }
  }
  return next;
}

// Its session ends it. A session that does not is asked again.
void ArbiterThread::end_runner(const RunnerEnd& end) {
  log::warn(log::About{end.vgpu}, "the program in slot {} {}: it is ended", end.slot,
            end.reason == RunnerEndReason::kDeadline ? "has had a kernel on the GPU for longer than its deadline"
                                                     : "sets its time slices by itself, again and again");
  const RunnerEndOrder order{end.reason, end.slot, end.since};
  for (const auto& [number, session] : sessions_) {
    if (session.vgpu != end.vgpu) continue;
    const Status status = send_packet(session.socket.get(), std::as_bytes(std::span(&order, 1)), {}, {});
    if (!status.ok()) log::warn(log::About{end.vgpu}, "its session does not take orders: {}", status.message());
  }
}

// Called by the setter's thread. What has gone or changed in the meantime did not fail.
void ArbiterThread::time_slice_failed(const TimeSliceOrder& order, const TimeSliceSetter::Target& target,
                                      const Status& why) {
  std::lock_guard lock(mutex_);
  if (channel_groups_of(order) != target) return;
  if (failed_.insert(order.vgpu).second)
    log::warn(log::About{order.vgpu}, "the hardware's time slices cannot be set: {}", why.message());
  core_.time_slice_failed(order.vgpu, order.slot, why, monotonic_ns());
  poke();
}

// Called by the setter's thread, as above.
void ArbiterThread::time_slice_changed(const TimeSliceOrder& order, const TimeSliceSetter::Target& target,
                                       uint64_t had_us) {
  std::lock_guard lock(mutex_);
  if (channel_groups_of(order) != target) return;
  if (core_.time_slice_changed(order.vgpu, order.slot, monotonic_ns())) {
    log::warn(log::About{order.vgpu}, "the program in slot {} has set its time slices to {} us; they are {} us again",
              order.slot, had_us, order.microseconds);
  }
  poke();
}

// Returns when to look again.
Time ArbiterThread::read_held_up(Time now) {
  Time next = ArbiterCore::kNever;
  for (auto& [number, session] : sessions_) {
    if (session.held_up && !session.hands_over_too_much()) read(number, &session, true);
    if (session.held_up) next = now + kLookAtClosed;
  }
  return next;
}

void ArbiterThread::run() {
  pthread_setname_np(pthread_self(), "arbiter");
  // While it waits for a processor, engines stand still. What it does at a time is short and bounded.
  const sched_param urgent{.sched_priority = 1};
  if (::pthread_setschedparam(pthread_self(), SCHED_RR, &urgent) != 0) log::debug("the arbiter has no priority");
  Time next = 0;
  while (!stop_) {
    epoll_event events[64];
    const Time wait = next == ArbiterCore::kNever ? kLongestSleep : std::max<Time>(0, next - monotonic_ns());
    const timespec timeout{wait / sched::kSecond, wait % sched::kSecond};
    const int count = ::epoll_pwait2(poll_.get(), events, 64, &timeout, nullptr);
    std::lock_guard lock(mutex_);
    const Time now = monotonic_ns();
    for (int i = 0; i < count; ++i) on_event(EventTag::unpack(events[i].data.u64), now);
    next = core_.run(now);
    carry_out_orders();
    next = std::min({next, lend(now), read_held_up(now)});
    for (const RunnerEnd& end : core_.take_runner_ends()) end_runner(end);
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
