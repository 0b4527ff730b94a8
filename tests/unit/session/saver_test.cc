// What a session does to save a suspended virtual GPU in a file, and to bring it back.
#include "backend/session/saver.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "backend/control/packet.h"
#include "backend/control/saved/stream.h"
#include "memory/base/json.h"
#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

// One page at an address of its own.
class PagedRunner final : public FakeRunner {
 public:
  explicit PagedRunner(uint8_t pid) : page(saved::kPage, std::byte(pid)) {
    process = pid;
    set_served({.owner = {}, .key = {pid}});
  }
  ~PagedRunner() override { wait(); }
  // For all that it does with pipes.
  void wait() {
    for (auto& thread : std::exchange(threads_, {})) thread.join();
  }
  void send(RunnerMessage message, std::span<const std::byte> tail, std::span<const int> fds, Done done) override {
    if (message.type == RunnerMessageType::kSaveMemory && !fds.empty()) {
      wait();  // one thing after the other, as a runner does
      const int pipe = ::fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
      threads_.emplace_back([this, pipe, write = message.flags == kSavedWrite, make = message.flags == kSavedMake] {
        const UniqueFd end(pipe);
        if (make) read_state(pipe);
        write ? write_page(pipe) : read_page(pipe);
      });
    }
    if (message.flags == kSavedForget) {
      wait();
      page.assign(saved::kPage, std::byte(0));
    }
    FakeRunner::send(message, tail, fds, std::move(done));
  }
  bool breaks_off = false, endless = false;
  std::string state = "all", lacks;  // what it says of itself
  std::string became;                // what it was told to become
  std::vector<std::byte> page;

 private:
  // Whoever reads may give up.
  static bool put(int pipe, std::span<const std::byte> bytes) {
    return ::write(pipe, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  }
  void write_page(int pipe) {
    const saved::StateHead head{state.size(), lacks.size()};
    if (!put(pipe, std::as_bytes(std::span(&head, 1))) || !put(pipe, std::as_bytes(std::span(state))) ||
        !put(pipe, std::as_bytes(std::span(lacks)))) {
      return;
    }
    const saved::Piece piece{0x1000u * static_cast<uint64_t>(process), saved::kPage}, last{};
    if (!put(pipe, std::as_bytes(std::span(&piece, 1))) || breaks_off || !put(pipe, page)) return;
    while (endless && put(pipe, std::as_bytes(std::span(&piece, 1))) && put(pipe, page)) continue;
    put(pipe, std::as_bytes(std::span(&last, 1)));
  }
  void read_state(int pipe) {
    saved::StateHead head;
    EXPECT_EQ(::read(pipe, &head, sizeof head), static_cast<ssize_t>(sizeof head));
    became.resize(head.bytes);
    EXPECT_EQ(::read(pipe, became.data(), became.size()), static_cast<ssize_t>(became.size()));
  }
  void read_page(int pipe) {
    saved::Piece piece;
    std::vector<std::byte> came(saved::kPage);
    if (::read(pipe, &piece, sizeof piece) != static_cast<ssize_t>(sizeof piece)) return;
    if (::read(pipe, came.data(), came.size()) == static_cast<ssize_t>(came.size())) page = came;
    EXPECT_EQ(::read(pipe, &piece, sizeof piece), static_cast<ssize_t>(sizeof piece));
  }
  std::vector<std::thread> threads_;
};

class SaverTest : public ::testing::Test {
 protected:
  SaverTest() {
    ::signal(SIGPIPE, SIG_IGN);  // as a session does
    UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address_), sizeof(sa_family_t)), 0);  // a free name
    length_ = sizeof address_;
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address_), &length_), 0);
    EXPECT_EQ(::listen(listener.get(), 4), 0);
    saver_ = std::make_unique<Saver>(
        base_.get(), std::move(listener),
        Saver::Session{
            .runners = [this] { return living_; },
            .suspended = [this] { return suspended_; },
            .stay = [this](const std::string& why) { stay_ = why; },
            .memory = [this] { return memory_; },
            .away =
                [this] {
                  Saver::Programs programs;
                  for (const auto& one : new_ones_) programs.insert(one.first);
                  return programs;
                },
            .revive = [this](const Saver::Programs& programs, const Saver::Revived& done) { revive(programs, done); },
            .revived = [this](bool well) { revived_ = well; },
            .vgpu = {7}});
    living_ = {&first_, &second_};
  }
  void revive(const Saver::Programs& programs, const Saver::Revived& done) {
    if (!revive_error_.ok()) return done(revive_error_, {});
    std::map<ReturnKey, Runner*> given;
    for (const auto& [program, runner] : new_ones_) {
      if (!programs.contains(program)) continue;
      living_.push_back(runner);
      given.emplace(program, runner);
    }
    done({}, given);
  }
  void turn() {
    event_base_loop(base_.get(), EVLOOP_NONBLOCK);
    first_.answer_all();
    second_.answer_all();
    new_one_.answer_all();
    ::usleep(500);
  }
  bool until(const std::function<bool()>& holds) {
    for (int turns = 0; turns < 20000; ++turns) {
      if (holds()) return true;
      turn();
    }
    return false;
  }
  UniqueFd bring(const std::string& token, int file) {
    UniqueFd client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address_), length_), 0);
    say(client, {{"token", token}}, file);
    return client;
  }
  void say(const UniqueFd& client, const nlohmann::json& what, int file = -1) {
    const std::string text = json_text(what);
    const int fds[] = {file};
    EXPECT_TRUE(
        send_packet(client.get(), std::as_bytes(std::span(text)), {}, std::span<const int>(fds).first(file < 0 ? 0 : 1))
            .ok());
  }
  // Null: the connection has ended.
  nlohmann::json heard(const UniqueFd& client) {
    std::vector<std::byte> buffer(1024);
    std::vector<UniqueFd> none;
    Result<size_t> length = Status::error(EAGAIN, "not yet");
    EXPECT_TRUE(until([&] {
      length = receive_packet(client.get(), buffer, &none);
      return length.ok() || length.status().code() != EAGAIN;
    }));
    if (!length.ok() || length.value() == 0) return {};
    return parse_json(std::string(reinterpret_cast<const char*>(buffer.data()), length.value()));
  }
  // All of a save, in a file.
  UniqueFd save() {
    UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
    EXPECT_TRUE(saver_->expect(Saver::What::kSave, "a", ::geteuid()).ok());
    const UniqueFd client = bring("a", file.get());
    EXPECT_EQ(heard(client)["ok"], true);
    say(client, {{"keep", true}});
    EXPECT_EQ(heard(client)["ok"], true);
    return file;
  }

  BasePtr base_{event_base_new()};
  sockaddr_storage address_{.ss_family = AF_UNIX, .__ss_padding = {}, .__ss_align = 0};
  socklen_t length_ = 0;
  PagedRunner first_{11}, second_{22}, new_one_{33};
  std::map<ReturnKey, Runner*> new_ones_;  // by the programs whose runners have ended
  Status revive_error_;
  std::optional<bool> revived_;
  std::vector<Runner*> living_;
  bool suspended_ = true;
  uint64_t memory_ = 1 << 20;
  std::string stay_;
  std::unique_ptr<Saver> saver_;
};

TEST_F(SaverTest, ThereAndBack) {
  const UniqueFd file = save();
  EXPECT_EQ(first_.page[0], std::byte(0));
  EXPECT_EQ(saver_->saved().size(), 32u);
  EXPECT_NE(stay_, "");
  ASSERT_TRUE(saver_->expect(Saver::What::kRestore, "b", ::geteuid()).ok());
  const UniqueFd client = bring("b", file.get());
  const auto answer = heard(client);
  EXPECT_EQ(answer["ok"], true) << answer;
  EXPECT_EQ(answer["bytes"], 2 * saved::kPage);
  first_.wait();
  second_.wait();
  EXPECT_EQ(first_.page[0], std::byte(11));
  EXPECT_EQ(second_.page[saved::kPage - 1], std::byte(22));
  EXPECT_EQ(saver_->saved(), "");
  EXPECT_EQ(stay_, "");
}

TEST_F(SaverTest, ARunnerWhoseContextsAreOffTheGpuIsToldSo) {
  first_.set_contexts_off(true);
  const UniqueFd file = save();
  for (const auto& [runner, wanted] : {std::pair{&first_, kContextsOff}, {&second_, uint64_t{0}}}) {
    const auto is_write = [](const FakeRunner::Sent& sent) { return sent.message.flags == kSavedWrite; };
    const auto sent = std::find_if(runner->messages.begin(), runner->messages.end(), is_write);
    ASSERT_NE(sent, runner->messages.end());
    EXPECT_EQ(sent->message.value, wanted);
  }
}

TEST_F(SaverTest, UntilTheFileIsKeptNothingIsLetGo) {
  const UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  ASSERT_TRUE(saver_->expect(Saver::What::kSave, "a", ::geteuid()).ok());
  UniqueFd client = bring("a", file.get());
  EXPECT_EQ(heard(client)["bytes"], 2 * saved::kPage);
  EXPECT_NE(stay_, "");
  client.reset();
  EXPECT_TRUE(until([this] { return stay_.empty(); }));
  EXPECT_EQ(first_.page[0], std::byte(11));
  EXPECT_EQ(saver_->saved(), "");
  EXPECT_EQ(stay_, "");
  EXPECT_TRUE(saver_->expect(Saver::What::kSave, "b", ::geteuid()).ok()) << "and the next one may come";
}

TEST_F(SaverTest, ARunnerThatGivesMoreThanThereIsFillsNoDisk) {
  second_.endless = true;
  const UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  ASSERT_TRUE(saver_->expect(Saver::What::kSave, "a", ::geteuid()).ok());
  const auto answer = heard(bring("a", file.get()));
  EXPECT_EQ(answer["ok"], false);
  EXPECT_NE(answer["error"].get<std::string>().find("than the virtual GPU has memory"), std::string::npos) << answer;
  struct stat found{};
  ASSERT_EQ(::fstat(file.get(), &found), 0);
  EXPECT_LT(found.st_size, 4 << 20);
  EXPECT_EQ(stay_, "") << "nothing was lost, and it goes on";
}

TEST_F(SaverTest, WhoHasNoTokenIsNobody) {
  const UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  EXPECT_TRUE(heard(bring("", file.get())).is_null()) << "none is expected";
  ASSERT_TRUE(saver_->expect(Saver::What::kSave, "a", ::geteuid()).ok());
  EXPECT_TRUE(heard(bring("b", file.get())).is_null());
  EXPECT_TRUE(heard(bring("a", -1)).is_null()) << "and no file";
  EXPECT_TRUE(first_.messages.empty());
  EXPECT_EQ(heard(bring("a", file.get()))["ok"], true) << "who has it still comes";
}

TEST_F(SaverTest, AnotherUserIsNobody) {
  const UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  ASSERT_TRUE(saver_->expect(Saver::What::kSave, "a", ::geteuid() + 1).ok());
  EXPECT_TRUE(heard(bring("a", file.get())).is_null());
  EXPECT_TRUE(first_.messages.empty());
}

TEST_F(SaverTest, AProgramThatEndsInTheMiddleEndsTheSave) {
  second_.breaks_off = true;
  const UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  ASSERT_TRUE(saver_->expect(Saver::What::kSave, "a", ::geteuid()).ok());
  const auto answer = heard(bring("a", file.get()));
  EXPECT_EQ(answer["ok"], false);
  EXPECT_NE(answer["error"].get<std::string>().find("has ended"), std::string::npos);
  EXPECT_EQ(first_.page[0], std::byte(11));
  EXPECT_EQ(stay_, "");
}

TEST_F(SaverTest, AFullDiskChangesNothing) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(saver_->expect(Saver::What::kSave, "a", ::geteuid()).ok());
  const auto answer = heard(bring("a", full.get()));
  EXPECT_EQ(answer["ok"], false);
  EXPECT_NE(answer["error"].get<std::string>().find("No space left"), std::string::npos);
  EXPECT_EQ(first_.page[0], std::byte(11));
  EXPECT_EQ(saver_->saved(), "");
}

TEST_F(SaverTest, AnotherFileIsRefusedBeforeAnyMemoryIsWritten) {
  const UniqueFd earlier = save();
  ASSERT_TRUE(saver_->expect(Saver::What::kRestore, "b", ::geteuid()).ok());
  EXPECT_EQ(heard(bring("b", earlier.get()))["ok"], true);
  const UniqueFd later = save();
  const size_t told = first_.messages.size();
  ASSERT_TRUE(saver_->expect(Saver::What::kRestore, "c", ::geteuid()).ok());
  const auto answer = heard(bring("c", earlier.get()));
  EXPECT_EQ(answer["ok"], false);
  EXPECT_NE(answer["error"].get<std::string>().find("another one"), std::string::npos);
  EXPECT_EQ(first_.messages.size(), told);
  EXPECT_NE(saver_->saved(), "");
  ASSERT_TRUE(saver_->expect(Saver::What::kRestore, "d", ::geteuid()).ok());
  EXPECT_EQ(heard(bring("d", later.get()))["ok"], true);
}

TEST_F(SaverTest, WhatIsNotSuspendedOrNotSavedIsRefused) {
  EXPECT_EQ(saver_->expect(Saver::What::kRestore, "a", ::geteuid()).code(), EBUSY);
  suspended_ = false;
  EXPECT_EQ(saver_->expect(Saver::What::kSave, "a", ::geteuid()).code(), EBUSY);
}

TEST_F(SaverTest, OnceItsProgramsHaveEndedNobodyNeedsTheFile) {
  const UniqueFd file = save();
  EXPECT_EQ(saver_->expect(Saver::What::kSave, "b", ::geteuid()).code(), EBUSY);
  living_.clear();
  for (const uint8_t program : {11, 22}) saver_->program_ended({program});
  EXPECT_EQ(saver_->saved(), "");
  ASSERT_TRUE(saver_->expect(Saver::What::kRestore, "b", ::geteuid()).ok());
  EXPECT_EQ(heard(bring("b", file.get()))["ok"], true);
}

TEST_F(SaverTest, WhatARunnerCouldNotFollowIsSaid) {
  second_.state.clear();
  second_.lacks = "a graph";
  const UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  ASSERT_TRUE(saver_->expect(Saver::What::kSave, "a", ::geteuid()).ok());
  const UniqueFd client = bring("a", file.get());
  EXPECT_EQ(heard(client)["lacks"], "a graph");
  say(client, {{"keep", true}, {"end", true}});
  EXPECT_EQ(heard(client)["ok"], true);
  EXPECT_FALSE(first_.killed || second_.killed);
  EXPECT_TRUE(saver_->replaceable({11}));
  EXPECT_FALSE(saver_->replaceable({22}));
}

TEST_F(SaverTest, RunnersThatEndAreFollowedByOthers) {
  const UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  ASSERT_TRUE(saver_->expect(Saver::What::kSave, "a", ::geteuid()).ok());
  const UniqueFd saving = bring("a", file.get());
  EXPECT_EQ(heard(saving)["lacks"], "");
  say(saving, {{"keep", true}, {"end", true}});
  EXPECT_EQ(heard(saving)["ok"], true);
  EXPECT_TRUE(first_.killed && second_.killed);
  living_.clear();
  saver_->program_ended({22});
  new_one_.set_served({.owner = {}, .key = {11}});
  new_ones_ = {{{11}, &new_one_}};
  EXPECT_EQ(saver_->saved().size(), 32u);

  revive_error_ = Status::error(EIO, "there is none");
  ASSERT_TRUE(saver_->expect(Saver::What::kRestore, "b", ::geteuid()).ok());
  EXPECT_EQ(heard(bring("b", file.get()))["error"], "there is none");
  EXPECT_EQ(revived_, false);
  EXPECT_NE(saver_->saved(), "");

  revive_error_ = {};
  ASSERT_TRUE(saver_->expect(Saver::What::kRestore, "c", ::geteuid()).ok());
  EXPECT_EQ(heard(bring("c", file.get()))["ok"], true);
  new_one_.wait();
  EXPECT_EQ(revived_, true);
  EXPECT_EQ(new_one_.became, "all");
  EXPECT_EQ(new_one_.page[0], std::byte(11));
  EXPECT_EQ(saver_->saved(), "");
}

// A session that has saved nothing itself, and what another one has saved.
class AnotherSessionTest : public SaverTest {
 protected:
  void SetUp() override {
    file_ = save();
    // It knows of no file, and a runner is there for each program that comes.
    saver_->went_on();
    living_.clear();
    first_.page.assign(saved::kPage, std::byte(0));
    second_.page.assign(saved::kPage, std::byte(0));
  }
  // The client that has brought the file.
  UniqueFd restore(bool without_missing) {
    EXPECT_TRUE(saver_->expect(Saver::What::kRestore, "b", ::geteuid()).ok());
    UniqueFd client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address_), length_), 0);
    say(client, {{"token", "b"}, {"without_missing", without_missing}}, file_.get());
    return client;
  }
  UniqueFd file_;
};

TEST_F(AnotherSessionTest, ItWaitsForProgramsAndGivesThemWhatTheyHad) {
  new_ones_ = {{{11}, &first_}, {{99}, &new_one_}};
  const UniqueFd client = restore(false);
  for (int turns = 0; turns < 100; ++turns) turn();
  EXPECT_TRUE(living_.empty()) << "one is still to come";
  new_ones_.insert({{22}, &second_});
  const auto answer = heard(client);
  EXPECT_EQ(answer["ok"], true) << answer;
  EXPECT_EQ(living_.size(), 2u) << "one that is not in the file gets nothing";
  first_.wait();
  second_.wait();
  EXPECT_EQ(first_.page[0], std::byte(11));
  EXPECT_EQ(second_.page[0], std::byte(22));
}

TEST_F(AnotherSessionTest, ItGoesWithoutThoseThatTheAdministratorGivesUp) {
  new_ones_ = {{{22}, &second_}};
  const auto answer = heard(restore(true));
  EXPECT_EQ(answer["ok"], true) << answer;
  second_.wait();
  EXPECT_EQ(second_.page[0], std::byte(22));
  EXPECT_EQ(first_.page[0], std::byte(0));
}

TEST_F(AnotherSessionTest, WhoBringsTheFileMayGiveItUpWhileItWaits) {
  UniqueFd client = restore(false);
  for (int turns = 0; turns < 100; ++turns) turn();
  client.reset();
  EXPECT_TRUE(until([this] { return saver_->expect(Saver::What::kRestore, "c", ::geteuid()).ok(); }));
}

TEST_F(AnotherSessionTest, ItHasNothingOfItsOwn) {
  living_ = {&new_one_};
  EXPECT_EQ(saver_->expect(Saver::What::kRestore, "b", ::geteuid()).code(), EBUSY);
}

}  // namespace
}  // namespace bandsaw
