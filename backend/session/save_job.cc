#include "backend/session/save_job.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "backend/session/request.h"
#include "memory/base/eventfd.h"
#include "memory/base/log.h"

namespace bandsaw {

SaveJob::~SaveJob() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

Result<UniqueFd> SaveJob::add_pipe(const ReturnKey& program, bool anew) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return Status::system("cannot make a pipe");
  UniqueFd reads(ends[0]), writes(ends[1]);
  UniqueFd& ours = kind_ == Kind::kWrite ? reads : writes;
  if (::fcntl(ours.get(), F_SETFL, O_NONBLOCK) < 0) return Status::system("cannot use a pipe");
  pipes_.push_back({program, std::move(ours), anew});
  return kind_ == Kind::kWrite ? std::move(writes) : std::move(reads);
}

Status SaveJob::start(event_base* base, std::function<void()> ended) {
  ended_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!ended_) return Status::system("cannot make an eventfd");
  on_ended_ = std::move(ended);
  event_.reset(event_new(
      base, ended_.get(), EV_READ,
      [](evutil_socket_t, short, void* self) {
        auto* const job = static_cast<SaveJob*>(self);
        job->thread_.join();
        const auto call = std::move(job->on_ended_);
        call();  // which may end the job
      },
      this));
  event_add(event_.get(), nullptr);
  thread_ = std::thread([this] {
    status_ = run();
    pipes_.clear();  // who still writes or reads sees the end
    if (!signal_event(ended_.get())) log::error("cannot say that memory was moved");
  });
  return {};
}

Status SaveJob::run() {
  if (kind_ == Kind::kWrite) return write();
  if (::lseek(file_, 0, SEEK_SET) < 0) return Status::system("it cannot be read from its beginning");
  return kind_ == Kind::kRead ? read() : saved::check_file(file_, &contents_);
}

Status SaveJob::write() {
  const auto sink = saved::FileSink::begin(file_);
  if (!sink.ok()) return sink.status();
  saved::Sink* const out = sink.value().get();
  contents_.head.runners = static_cast<uint32_t>(pipes_.size());
  if (Status status = saved::write_one(out, contents_.head); !status.ok()) return status;
  for (const Pipe& pipe : pipes_) {
    saved::PipeSource source(pipe.end.get(), &stop_);
    std::string lacks;
    Status status = saved::write_one(out, saved::RunnerHead{.program = pipe.program});
    if (status.ok()) status = saved::copy_state(&source, out, &lacks, &states_room_);
    if (lacks.empty()) {
      contents_.programs.insert(pipe.program);
    } else {
      contents_.lacks = printable({reinterpret_cast<const unsigned char*>(lacks.data()), lacks.size()});
    }
    if (status.ok()) status = saved::copy_pieces(&source, out, &contents_.bytes, &room_);
    if (!status.ok()) return status;
  }
  return sink.value()->end();
}

// A program that has ended since needs nothing.
Status SaveJob::read() {
  const auto source = saved::FileSource::begin(file_);
  if (!source.ok()) return source.status();
  saved::Source* const in = source.value().get();
  if (Status status = saved::read_head(in, &contents_.head); !status.ok()) return status;
  for (uint32_t i = 0; i < contents_.head.runners; ++i) {
    saved::RunnerHead runner;
    if (Status status = saved::read_one(in, &runner); !status.ok()) return status;
    const auto pipe =
        std::find_if(pipes_.begin(), pipes_.end(), [&](const Pipe& one) { return one.program == runner.program; });
    saved::PipeSink sink(pipe == pipes_.end() ? -1 : pipe->end.get(), &stop_);
    saved::PipeSink* const there = pipe == pipes_.end() ? nullptr : &sink;
    std::string words;
    Status status = saved::copy_state(in, there && pipe->anew ? there : nullptr, &words);
    if (status.ok()) status = saved::copy_pieces(in, there, &contents_.bytes);
    if (!status.ok()) return status;
  }
  return source.value()->end();
}

}  // namespace bandsaw
