#include "backend/session/sensor_reader.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr std::chrono::seconds kAskedSince{10};  // then nobody watches any more
constexpr std::chrono::seconds kPause{60};       // after a reader that ended by itself

}  // namespace

SensorReader::SensorReader(event_base* base, Launcher* launcher, std::vector<std::string> environment)
    : base_(base), launcher_(launcher), environment_(std::move(environment)) {}

SensorReader::~SensorReader() { end(); }

const GpuReport* SensorReader::read(const std::string& bus_id) {
  static constexpr GpuReport kNone{};
  asked_ = Clock::now();
  if (bus_id != bus_id_) {
    end();
    not_before_ = {};
    bus_id_ = bus_id;
  }
  if (pid_ == 0 && (asked_ < not_before_ || !start(bus_id))) return &kNone;
  return report_ ? &*report_ : nullptr;
}

void SensorReader::tick() {
  if (pid_ != 0 && Clock::now() - asked_ > kAskedSince) end();
}

bool SensorReader::start(const std::string& bus_id) {
  not_before_ = Clock::now() + kPause;
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) < 0) return false;
  UniqueFd ours(pipe[0]), theirs(pipe[1]);
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  const Launch launch{.task = RunnerTask::kSensors, .argument = bus_id, .environment = environment_};
  const auto pid = launcher_->launch(launch, theirs.get(), STDOUT_FILENO);
  if (!pid.ok()) return false;
  pid_ = pid.value();
  output_ = std::move(ours);
  readable_.reset(event_new(
      base_, output_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<SensorReader*>(self)->receive(); }, this));
  event_add(readable_.get(), nullptr);
  return true;
}

// Each write of the reader is smaller than PIPE_BUF, and comes whole.
void SensorReader::receive() {
  GpuReport report{};
  const ssize_t length = ::read(output_.get(), &report, sizeof report);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length == static_cast<ssize_t>(sizeof report)) {
    report_ = report;
    return;
  }
  log::info("the GPU's sensors cannot be read; next attempt in {} s at the earliest", kPause.count());
  end();
  not_before_ = Clock::now() + kPause;
}

void SensorReader::end() {
  if (pid_ == 0) return;
  readable_.reset();
  output_.reset();
  report_.reset();
  launcher_->kill(pid_);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
  not_before_ = {};
}

}  // namespace bandsaw
