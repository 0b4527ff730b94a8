// A runner as the session sees it, whatever starts it: RunnerProcess, or a test's own.
//
// A Runner lives until its process has been reaped: `on_gone` is then called once, after every waiting Done was
// called with EPIPE, and the object is invalid when that call has returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "backend/control/mps_priority.h"
#include "backend/control/runner_link.h"
#include "backend/session/exchange.h"
#include "backend/session/request.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// What a runner has said of the channel groups of its contexts.
struct RunnerChannelGroups {
  ChannelGroupList list;
  UniqueFd descriptor;  // its /dev/nvidiactl; none where the list is empty
};

// The guest process that a runner serves, as its kernel says, and the runner's slot of the usage page.
struct ServedProcess {
  GuestOwner owner;
  uint32_t pid = 0, uid = 0;
  int slot = -1;
  ReturnKey key{};  // zeros: it cannot come back
};

class Runner {
 public:
  using Done = std::function<void(int error)>;  // 0 or an errno
  virtual ~Runner() = default;

  virtual uint64_t window_base() const = 0;
  virtual int pid() const = 0;
  // The MPS daemon that it is a client of (the folder of its sockets); empty: none.
  virtual std::string mps() const { return {}; }
  // As a client of that daemon.
  virtual MpsPriority mps_priority() const { return MpsPriority::kBelowNormal; }

  void set_served(const ServedProcess& served) { served_ = served; }
  const ServedProcess& served() const { return served_; }

  // Sends in order; sets the message's serial. `fds` are duplicated before the call returns. `done` is called with
  // the runner's answer, never from inside this call.
  virtual void send(RunnerMessage message, std::span<const std::byte> tail, std::span<const int> fds, Done done) = 0;

  // Ends the process. kAsk: asks it to end, and kills it if it has not within kEndTimeout, or now if its contexts are
  // off the GPU. kKill: kills it now.
  enum class Stop { kAsk, kKill };
  virtual void stop(Stop how) = 0;
  // It was told to end, or has ended; it is still to be reaped.
  virtual bool ending() const { return false; }
  // The guest process's calls return this CUresult from now on, if the runner still does what it is told; then it is
  // killed, at latest after kFailTimeout.
  virtual void fail(uint32_t error) = 0;
  virtual void set_on_gone(std::function<void()> on_gone) = 0;

  // Null: it has said nothing yet, or is being ended; whoever was handed the descriptor is to let go of it.
  virtual const RunnerChannelGroups* channel_groups() const { return nullptr; }
  // Its contexts are about to leave the GPU (true), or are back. Meanwhile none of its calls to the driver returns, and
  // nobody is to hold the descriptor of its channel groups: it says them again when they are back.
  virtual void set_contexts_off(bool) {}
  virtual bool contexts_off() const { return false; }
  // Called each time that this changes.
  virtual void set_on_channel_groups(std::function<void()>) {}

 private:
  ServedProcess served_;
};

class RunnerSource {
 public:
  using Taken = std::function<void(Result<Runner*>)>;
  virtual ~RunnerSource() = default;
  // Hands out a warm runner, now or when one is ready, whose address window lies at none of `taken_bases`
  // (VGPU_WINDOW_TAKEN_MASK). Whoever takes it must stop it.
  virtual void take(Taken taken, uint32_t taken_bases) = 0;
  // As take(), also while nobody else gets one.
  virtual void take_in_hold(Taken taken, uint32_t taken_bases) { take(std::move(taken), taken_bases); }
};

}  // namespace bandsaw
