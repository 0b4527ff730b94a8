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
// For programs on their way from another session, which look for it every second.
constexpr std::chrono::seconds kAwaitMost{15};
constexpr timeval kAwaitStep{0, 50000};
constexpr size_t kMessageMost = 1024;

std::string what_failed(int error) {
  switch (error) {
    case ENOTSUP:
      return "memory of a program cannot be reached, or its runner cannot be followed by another";
    case EPROTO:
      return "the file's memory is not what its programs have, or they are not given the same again; the session's log "
             "says more";
    case EADDRNOTAVAIL:
      return "the addresses of its programs are not free in new runners";
    case EADDRINUSE:
      return "variables of its programs' code lie at other addresses in new runners; the session's log names them";
    case ENODEV:
      return "its programs were told of a device with other SMs, or of another compute capability";
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
  await_.reset(event_new(
      base_, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<Saver*>(self)->await_programs(); },
      this));
}

Saver::~Saver() = default;

Status Saver::expect(What what, const std::string& token, uid_t uid) {
  if (state_ != State::kIdle && state_ != State::kExpecting) {
    return Status::error(EBUSY, "it is being saved or restored");
  }
  if (!session_.suspended()) return Status::error(EBUSY, "it is not suspended");
  if (what == What::kSave && !saved().empty()) return Status::error(EBUSY, "it is saved already, as {}", saved_);
  // What another session has saved is for one that has nothing yet. A file of this one may have no program, or of those
  // that have ended since; it is read all the same, and whoever comes next goes on.
  if (what == What::kRestore && saved_.empty() && !session_.runners().empty()) {
    return Status::error(EBUSY, "its memory is here: nothing of it is in a file");
  }
  if (token.empty()) return Status::error(EINVAL, "no token");
  client_event_.reset();
  client_.reset();
  what_ = what;
  token_ = token;
  uid_ = uid;
  state_ = State::kExpecting;
  event_add(expire_.get(), &kExpectMost);
  if (session_.changed) session_.changed();
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
  without_missing_ = said.value("without_missing", nlohmann::json()) == true;
  file_ = std::move(came->front());
  if (!session_.suspended()) return finish(Status::error(EBUSY, "it is not suspended any more"));
  what_ == What::kSave ? save() : check();
}

// How much a file has is known when it is read.
uint64_t Saver::restored_bytes() const {
  const bool under_way = state_ != State::kIdle && what_ == What::kRestore;
  return under_way ? session_.memory() : restored_;
}

std::string Saver::saved() const {
  const bool nobody = session_.runners().empty() && replaceable_.empty();
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
  for (Runner* const runner : session_.runners()) tell(runner, what, job);
}

// `job`: null: no bytes go to it or come.
void Saver::tell(Runner* runner, uint32_t what, SaveJob* job) {
  std::vector<int> fds;
  UniqueFd pipe;
  if (job) {
    auto made = job->add_pipe(runner->served().key, what == kSavedMake);
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
  const uint64_t contexts = runner->contexts_off() ? kContextsOff : 0;
  runner->send({.type = RunnerMessageType::kSaveMemory, .flags = what, .value = contexts}, {}, fds,
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

// That it has what the programs here need.
Status Saver::is_right_file() const {
  const std::string id = text_of(job_->head().id);
  if (!saved_.empty() && id != saved_) {
    return Status::error(EINVAL, "it is another one: this virtual GPU was saved as {}, and the file is {}", saved_, id);
  }
  if (!saved_.empty() || job_->lacks().empty()) return {};
  const std::string& lacks = job_->lacks();
  return Status::error(ENOTSUP, "a program in it had {}, and ended with its session",
                       printable({reinterpret_cast<const unsigned char*>(lacks.data()), lacks.size()}));
}

// Programs that need what the file has, and are not here.
Saver::Programs Saver::missing() const {
  Programs missing = saved_.empty() ? job_->replaceable() : replaceable_;
  for (Runner* const runner : session_.runners()) missing.erase(runner->served().key);
  if (!session_.away) return missing;
  for (const ReturnKey& program : session_.away()) missing.erase(program);
  return missing;
}

void Saver::await_programs() {
  const size_t missing = this->missing().size(), all = job_->replaceable().size();
  if (missing == 0 || without_missing_) return revive();
  if (std::exchange(state_, State::kAwaiting) != State::kAwaiting) {
    await_until_ = std::chrono::steady_clock::now() + kAwaitMost;
  }
  if (std::chrono::steady_clock::now() < await_until_) {
    event_add(await_.get(), &kAwaitStep);
    return;
  }
  finish(Status::error(EAGAIN, "{} of its {} programs {} not come here; `--without-missing` gives them up", missing,
                       all, missing == 1 ? "has" : "have"));
}

// Programs whose runners have ended get new ones first.
void Saver::revive() {
  Programs programs;
  if (session_.away) {
    for (const ReturnKey& program : session_.away()) {
      if (job_->replaceable().contains(program)) programs.insert(program);
    }
  }
  if (programs.empty()) return read_back({});
  state_ = State::kReviving;
  session_.revive(programs, [this](const Status& status, const std::map<ReturnKey, Runner*>& revived) {
    if (!status.ok()) {
      session_.revived(false);
      return finish(status);
    }
    read_back(revived);
  });
}

void Saver::read_back(const std::map<ReturnKey, Runner*>& revived) {
  state_ = State::kReading;
  auto job = std::make_unique<SaveJob>(SaveJob::Kind::kRead, file_.get());
  step_ = std::make_shared<Step>();
  std::set<Runner*> anew;
  for (const auto& [program, runner] : revived) {
    anew.insert(runner);
    tell(runner, kSavedMake, job.get());
  }
  for (Runner* const runner : session_.runners()) {
    if (!anew.contains(runner)) tell(runner, kSavedRead, job.get());
  }
  run(std::move(job));
}

void Saver::forget(bool end) {
  state_ = State::kForgetting;
  replaceable_ = job_->replaceable();
  saved_ = text_of(id_);  // from now on a runner may end
  restored_ = 0;
  step_ = std::make_shared<Step>();
  for (Runner* const runner : session_.runners()) {
    if (end) {
      runner->stop(Runner::Stop::kKill);
    } else {
      tell(runner, kSavedForget, nullptr);
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
      if (status.ok()) status = is_right_file();
      return status.ok() ? await_programs() : finish(status);
    case State::kReading:
      if (session_.revived) session_.revived(status.ok());
      if (!status.ok()) return finish(status);
      log::info("restored from {}: {} bytes", text_of(job_->head().id), job_->bytes());
      forget_file();
      restored_ = job_->bytes();
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

void Saver::forget_file() {
  restored_ = 0;
  saved_.clear();
  replaceable_.clear();
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
  } else if (state_ == State::kWritten || state_ == State::kAwaiting) {
    event_del(await_.get());
    finish(Status::error(ECANCELED, "who wanted it has gone"));
  } else if (state_ == State::kExpecting) {
    state_ = State::kIdle;
    token_.clear();
    if (session_.changed) session_.changed();
  }
}

}  // namespace bandsaw
