#include "backend/session/saver.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "backend/control/owner.h"
#include "backend/control/packet.h"
#include "memory/base/json.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr timeval kExpectMost{30, 0};
constexpr size_t kMessageMost = 1024;

std::string what_failed(int error) {
  switch (error) {
    case ENOTSUP:
      return "memory of a program on a GPU cannot be saved";
    case EPROTO:
      return "the file's memory is not what its programs have";
    case EADDRNOTAVAIL:
      return "the addresses of its programs are not free in new runners";
    default:
      return std::strerror(error);
  }
}

std::string text_of(const saved::Id& id) {
  std::string text;
  for (const uint8_t byte : id) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

// What is to come before the next state: the job's end, and what runners answer.
struct Saver::Step {
  size_t pending = 1;
  int error = 0;  // the first
};

Saver::Saver(event_base* base, UniqueFd listener, Session session)
    : base_(base), listener_(std::move(listener)), session_(std::move(session)) {
  accept_event_.reset(event_new(
      base_, listener_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<Saver*>(self)->accept(); }, this));
  event_add(accept_event_.get(), nullptr);
  expire_.reset(event_new(
      base_, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<Saver*>(self)->client_gone(); },
      this));
}

Saver::~Saver() = default;

Status Saver::expect(What what, const std::string& token, uid_t uid) {
  if (state_ != State::kIdle && state_ != State::kExpecting) {
    return Status::error(EBUSY, "it is being saved or restored");
  }
  if (!session_.suspended()) return Status::error(EBUSY, "it is not suspended");
  if (what == What::kSave && !saved().empty()) return Status::error(EBUSY, "it is saved already, as {}", saved_);
  if (what == What::kRestore && saved().empty()) {
    return Status::error(EBUSY, "its memory is here: nothing of it is in a file, or its programs have ended since");
  }
  if (token.empty()) return Status::error(EINVAL, "no token");
  client_event_.reset();
  client_.reset();
  what_ = what;
  token_ = token;
  uid_ = uid;
  state_ = State::kExpecting;
  event_add(expire_.get(), &kExpectMost);
  return {};
}

void Saver::accept() {
  UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client || state_ != State::kExpecting || read_peer(client.get()).who.uid != uid_) return;  // not expected
  client_ = std::move(client);
  client_event_.reset(event_new(
      base_, client_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<Saver*>(self)->receive(); }, this));
  event_add(client_event_.get(), nullptr);
}

void Saver::receive() {
  std::vector<std::byte> buffer(kMessageMost);
  std::vector<UniqueFd> came;
  const auto length = receive_packet(client_.get(), buffer, &came);
  if (!length.ok() && length.status().code() == EAGAIN) return;
  if (!length.ok() || length.value() == 0) return client_gone();
  const auto said = parse_json(std::string(reinterpret_cast<const char*>(buffer.data()), length.value()));
  if (state_ == State::kExpecting) return take_file(said, &came);
  const bool keep = said.is_object() && said.value("keep", nlohmann::json()) == true;
  const bool end = keep && said.value("end", nlohmann::json()) == true;
  if (state_ == State::kWritten && keep) return forget(end && lacks().empty());
  client_gone();
}

// Somebody else may have come before the one who was told the token: that one is still expected.
void Saver::take_file(const nlohmann::json& said, std::vector<UniqueFd>* came) {
  const bool right = said.is_object() && said.value("token", nlohmann::json()) == token_ && came->size() == 1;
  if (!right) {
    client_event_.reset();
    client_.reset();
    return;
  }
  event_del(expire_.get());
  token_.clear();
  file_ = std::move(came->front());
  if (!session_.suspended()) return finish(Status::error(EBUSY, "it is not suspended any more"));
  what_ == What::kSave ? save() : check();
}

std::string Saver::saved() const {
  const bool nobody = session_.runners().empty() && !(session_.awaits && session_.awaits());
  return nobody ? std::string() : saved_;
}

void Saver::run(std::unique_ptr<SaveJob> job) {
  job_ = std::move(job);
  const Status status = job_->start(base_, [this, step = std::weak_ptr(step_)] { one_less(step.lock()); });
  if (!status.ok()) finish(status);
}

void Saver::one_less(const std::shared_ptr<Step>& step) {
  if (step && --step->pending == 0) advance();
}

void Saver::tell_runners(uint32_t what, SaveJob* job) {
  step_ = std::make_shared<Step>();
  for (Runner* const runner : session_.runners()) tell(runner, what, job, runner->pid());
}

// `job`: null: no bytes go to it or come. `pid`: as whom the file knows it.
void Saver::tell(Runner* runner, uint32_t what, SaveJob* job, int pid) {
  std::vector<int> fds;
  UniqueFd pipe;
  if (job) {
    auto made = job->add_pipe(pid, what == kSavedMake);
    if (!made.ok()) {
      step_->error = made.status().code();
      return;
    }
    pipe = std::move(made.value());
    fds.push_back(pipe.get());
  }
  ++step_->pending;
  // One that has ended needs nothing, but a new one is needed.
  const bool ended_is_error = what == kSavedMake;
  runner->send({.type = RunnerMessageType::kSaveMemory, .flags = what}, {}, fds,
               [this, weak = std::weak_ptr(step_), ended_is_error](int error) {
                 const auto step = weak.lock();
                 if (step && (error != EPIPE || ended_is_error) && step->error == 0) step->error = error;
                 one_less(step);
               });
}

void Saver::save() {
  if (::getrandom(id_.data(), id_.size(), 0) != static_cast<ssize_t>(id_.size())) {
    return finish(Status::system("no random number"));
  }
  state_ = State::kWriting;
  session_.stay("it is being saved");
  auto job = std::make_unique<SaveJob>(SaveJob::Kind::kWrite, file_.get());
  job->set_head({.id = id_, .vgpu = session_.vgpu});
  job->set_memory(session_.memory());
  tell_runners(kSavedWrite, job.get());
  run(std::move(job));
}

void Saver::check() {
  state_ = State::kChecking;
  step_ = std::make_shared<Step>();
  run(std::make_unique<SaveJob>(SaveJob::Kind::kCheck, file_.get()));
}

// Programs whose runners have ended get new ones first.
void Saver::revive() {
  if (!session_.awaits || !session_.awaits()) return read_back({});
  state_ = State::kReviving;
  session_.revive([this](const Status& status, const std::map<int, Runner*>& revived) {
    if (!status.ok()) {
      session_.revived(false);
      return finish(status);
    }
    read_back(revived);
  });
}

void Saver::read_back(const std::map<int, Runner*>& revived) {
  state_ = State::kReading;
  auto job = std::make_unique<SaveJob>(SaveJob::Kind::kRead, file_.get());
  step_ = std::make_shared<Step>();
  std::set<Runner*> anew;
  for (const auto& [pid, runner] : revived) {
    anew.insert(runner);
    tell(runner, kSavedMake, job.get(), pid);
  }
  for (Runner* const runner : session_.runners()) {
    if (!anew.contains(runner)) tell(runner, kSavedRead, job.get(), runner->pid());
  }
  run(std::move(job));
}

void Saver::forget(bool end) {
  state_ = State::kForgetting;
  replaceable_ = job_->replaceable();
  saved_ = text_of(id_);  // from now on a runner may end
  step_ = std::make_shared<Step>();
  for (Runner* const runner : session_.runners()) {
    if (end) {
      runner->stop(Runner::Stop::kKill);
    } else {
      tell(runner, kSavedForget, nullptr, runner->pid());
    }
  }
  one_less(step_);
}

void Saver::advance() {
  Status status = job_ ? job_->status() : Status();
  // What a runner says is nearer to the cause than that its pipe has ended.
  if (const int error = step_->error; error != 0) status = Status::error(error, "{}", what_failed(error));
  switch (state_) {
    case State::kWriting:
      return advance_written(status);
    case State::kForgetting:
      log::info("saved as {}: {} bytes are in a file", saved_, job_->bytes());
      return finish({});
    case State::kChecking:
      if (status.ok() && text_of(job_->head().id) != saved_) {
        status = Status::error(EINVAL, "it is another one: this virtual GPU was saved as {}, and the file is {}",
                               saved_, text_of(job_->head().id));
      }
      return status.ok() ? revive() : finish(status);
    case State::kReading:
      if (session_.revived) session_.revived(status.ok());
      if (!status.ok()) return finish(status);
      log::info("restored from {}: {} bytes", saved_, job_->bytes());
      saved_.clear();
      return finish({});
    default:
      return;
  }
}

void Saver::advance_written(const Status& status) {
  if (!status.ok() || !client_) return finish(status);
  state_ = State::kWritten;
  answer({}, job_->bytes());
}

void Saver::finish(const Status& status) {
  if (!status.ok()) log::warn("neither saved nor restored: {}", status.message());
  answer(status, job_ ? job_->bytes() : 0);
  session_.stay(saved_.empty() ? "" : "its memory is in a file: `vgpuctl restore` brings it back");
  state_ = State::kIdle;
  token_.clear();
  client_event_.reset();
  client_.reset();
  file_.reset();
}

// Of what was saved last.
std::string Saver::lacks() const {
  if (!job_) return {};
  if (!job_->lacks().empty()) return job_->lacks();
  return session_.lacks ? session_.lacks() : std::string();
}

void Saver::answer(const Status& status, uint64_t bytes) {
  if (!client_) return;
  const std::string text =
      json_text(nlohmann::json{{"ok", status.ok()}, {"bytes", bytes}, {"error", status.message()}, {"lacks", lacks()}});
  (void)send_packet(client_.get(), std::as_bytes(std::span(text)), {}, {});
}

// Or nobody has come in time. What is being written is given up; what is being read goes on to its end.
void Saver::client_gone() {
  client_event_.reset();
  client_.reset();
  if (state_ == State::kWriting || state_ == State::kChecking) {
    job_->stop();
  } else if (state_ == State::kWritten) {
    finish(Status::error(ECANCELED, "who wanted it has gone"));
  } else if (state_ == State::kExpecting) {
    state_ = State::kIdle;
    token_.clear();
  }
}

}  // namespace bandsaw
