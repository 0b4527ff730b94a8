#include "backend/session/sensor_reader.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr std::chrono::seconds kAskedSince{10};  // then nobody watches any more
constexpr std::chrono::seconds kPause{60};       // after a reader that ended by itself

// What the child needs, made before the fork: afterwards it may allocate nothing.
struct ReaderPlan {
  const char* path;
  int file;
  int output;
  pid_t parent;
  char* const* arguments;
  char* const* environment;
};

[[noreturn]] void become_reader(const ReaderPlan& plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (::dup2(plan.output, STDOUT_FILENO) < 0) ::_exit(127);
  ::close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
  ::execve(plan.path, plan.arguments, plan.environment);
  if (plan.file >= 0) ::execveat(plan.file, "", plan.arguments, plan.environment, AT_EMPTY_PATH);
  ::_exit(126);
}

std::vector<char*> as_pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

SensorReader::SensorReader(event_base* base, std::string path, int file, std::vector<std::string> environment)
    : base_(base), path_(std::move(path)), file_(file), environment_(std::move(environment)) {}

SensorReader::~SensorReader() { end(); }

const vgpu_answer_sensors* SensorReader::read(const std::string& bus_id) {
  static constexpr vgpu_answer_sensors kNone{};
  asked_ = Clock::now();
  if (pid_ == 0 && (asked_ < not_before_ || !start(bus_id))) return &kNone;
  return values_ ? &*values_ : nullptr;
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
  const std::vector<std::string> words = {"bandsaw-runner", "--sensors", bus_id};
  const auto arguments = as_pointers(words);
  const auto environment = as_pointers(environment_);
  const ReaderPlan plan{path_.c_str(), file_, theirs.get(), ::getpid(), arguments.data(), environment.data()};
  const pid_t pid = ::fork();
  if (pid < 0) return false;
  if (pid == 0) become_reader(plan);
  pid_ = pid;
  output_ = std::move(ours);
  readable_.reset(event_new(
      base_, output_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<SensorReader*>(self)->receive(); }, this));
  event_add(readable_.get(), nullptr);
  return true;
}

// Each write of the reader is smaller than PIPE_BUF, and comes whole.
void SensorReader::receive() {
  vgpu_answer_sensors sensors{};
  const ssize_t length = ::read(output_.get(), &sensors, sizeof sensors);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length == static_cast<ssize_t>(sizeof sensors)) {
    values_ = sensors;
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
  values_.reset();
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
  not_before_ = {};
}

}  // namespace bandsaw
