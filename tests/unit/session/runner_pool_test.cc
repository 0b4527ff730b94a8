#include "backend/session/runner_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>

#include "backend/control/event_ptr.h"
#include "backend/control/json_link.h"
#include "backend/control/window_bases.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/session/launchers.h"

namespace bandsaw {
namespace {

// Where an MPS daemon would be: accepts nobody.
struct StandInDaemon {
  StandInDaemon() {
    char path[] = "/tmp/bandsaw-test-XXXXXX";
    folder = ::mkdtemp(path);
    listener = listen_unix(socket(), SOCK_SEQPACKET, 0600);
  }
  ~StandInDaemon() { std::filesystem::remove_all(folder); }
  std::string socket() const { return folder + "/control"; }
  RunnerLaunchConfig launch_config() const {
    RunnerLaunchConfig launch_config;
    launch_config.mps = folder;
    launch_config.socket = socket();
    return launch_config;
  }

  std::string folder;
  Result<UniqueFd> listener = Status::error(ENOENT, "nobody listens yet");
};

class RunnerPoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<RunnerPool> make(const std::string& behaviour, unsigned warm) {
    auto pool = std::make_unique<RunnerPool>(
        base.get(), RunnerProgram{.launcher = launcher.get(), .environment = {"BANDSAW_FAKE_RUNNER=" + behaviour}},
        warm);
    pool->start();
    return pool;
  }
  template <typename Done>
  bool turn(Done done) {
    for (int i = 0; i < 1000 && !done(); ++i) {
      const timeval tick = to_timeval(std::chrono::milliseconds(5));
      event_base_loopexit(base.get(), &tick);
      event_base_dispatch(base.get());
    }
    return done();
  }
  std::unique_ptr<Launcher> launcher = plain_launcher();
  BasePtr base{event_base_new()};
};

TEST_F(RunnerPoolTest, KeepsOneWarmAndReplacesATakenOne) {
  const auto pool = make("", 1);
  ASSERT_TRUE(turn([&] { return pool->warm() == 1; }));
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->window_base(), VGPU_WINDOW_BASE_0);
  EXPECT_TRUE(turn([&] { return pool->warm() == 1 && pool->living() == 2; }));
  bool gone = false;
  taken->set_on_gone([&] { gone = true; });
  taken->stop(Runner::Stop::kAsk);
  EXPECT_TRUE(turn([&] { return gone && pool->living() == 1; }));
}

// What lies at the usual place is the program's own: an allocator may have chosen it by chance.
TEST_F(RunnerPoolTest, WhoCannotHaveTheUsualAddressesGetsARunnerWithOthers) {
  const auto pool = make("", 1);
  ASSERT_TRUE(turn([&] { return pool->warm() == 1; }));
  std::vector<Runner*> others;
  for (int i = 0; i < 2; ++i) pool->take([&](Result<Runner*> runner) { others.push_back(runner.value()); }, 1);
  Runner* usual = nullptr;
  pool->take([&](Result<Runner*> runner) { usual = runner.value(); });
  ASSERT_NE(usual, nullptr) << "the warm one";
  EXPECT_EQ(usual->window_base(), VGPU_WINDOW_BASE_0);
  ASSERT_TRUE(turn([&] { return others.size() == 2; }));
  for (Runner* const other : others) EXPECT_EQ(other->window_base(), VGPU_WINDOW_BASE_1);
  EXPECT_TRUE(turn([&] { return pool->warm() == 1; }));
  EXPECT_EQ(pool->started(), 4u) << "and no more";
  Runner* again = nullptr;
  pool->hold(true);
  pool->take_in_hold([&](Result<Runner*> runner) { again = runner.value(); },
                     VGPU_WINDOW_TAKEN_MASK & ~bit_of_base(VGPU_WINDOW_BASE_1));
  ASSERT_TRUE(turn([&] { return again != nullptr; }));
  EXPECT_EQ(again->window_base(), VGPU_WINDOW_BASE_1);
}

TEST_F(RunnerPoolTest, WhoWaitsForARunnerThatMayNotStartYetGetsItLater) {
  auto pool = std::make_unique<RunnerPool>(
      base.get(), RunnerProgram{.launcher = launcher.get(), .environment = {"BANDSAW_FAKE_RUNNER="}}, 0);
  bool early = true, indebted = true;
  int asked = 0;
  const auto pace = [&asked](const bool* stands) {
    return [&asked, stands] {
      ++asked;
      return std::chrono::nanoseconds(*stands ? 1 : 0);
    };
  };
  pool->set_pace(pace(&early), pace(&indebted));
  pool->start();
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  EXPECT_TRUE(turn([&] { return asked > 2; }));
  EXPECT_EQ(pool->started(), 0u);
  early = false;
  EXPECT_TRUE(turn([&] { return pool->warm() == 1; }));
  EXPECT_EQ(taken, nullptr);
  indebted = false;
  EXPECT_TRUE(turn([&] { return taken != nullptr; }));
  EXPECT_EQ(pool->started(), 1u);
}

TEST_F(RunnerPoolTest, AnswersAreMatchedAndDeathAnswersTheRest) {
  const auto pool = make("", 1);
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  ASSERT_TRUE(turn([&] { return taken; }));
  int first = -1, second = -1, gone = -1;
  taken->send({.type = RunnerMessageType::kAddRing}, {}, {}, [&](int error) { first = error; });
  ASSERT_TRUE(turn([&] { return first == 0; }));
  taken->set_on_gone([&] { gone = second; });
  ::kill(taken->pid(), SIGKILL);
  taken->send({.type = RunnerMessageType::kAddRing}, {}, {}, [&](int error) { second = error; });
  EXPECT_TRUE(turn([&] { return gone != -1; }));
  EXPECT_EQ(gone, EPIPE);
}

TEST_F(RunnerPoolTest, ChannelGroupsAreThereWithTheRunnerAndGoBeforeIt) {
  const auto pool = make("groups", 1);
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  ASSERT_TRUE(turn([&] { return taken; }));
  const RunnerChannelGroups* groups = taken->channel_groups();
  ASSERT_NE(groups, nullptr);
  EXPECT_EQ(groups->list.count, 2u);
  EXPECT_EQ(groups->list.handles[1], 2u);
  EXPECT_TRUE(groups->descriptor);
  int changes = 0;
  taken->set_on_channel_groups([&] { ++changes; });
  bool gone = false;
  taken->set_on_gone([&] { gone = true; });
  taken->stop(Runner::Stop::kAsk);
  EXPECT_EQ(taken->channel_groups(), nullptr);
  EXPECT_EQ(changes, 1);
  EXPECT_TRUE(turn([&] { return gone; }));
}

TEST_F(RunnerPoolTest, ARunnerThatDiesLeavesNoChannelGroups) {
  const auto pool = make("groups", 1);
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  ASSERT_TRUE(turn([&] { return taken; }));
  ASSERT_NE(taken->channel_groups(), nullptr);
  bool let_go = false, gone = false, let_go_first = false;
  taken->set_on_channel_groups([&] { let_go = taken->channel_groups() == nullptr; });
  taken->set_on_gone([&] {
    gone = true;
    let_go_first = let_go;
  });
  ::kill(taken->pid(), SIGKILL);
  EXPECT_TRUE(turn([&] { return gone; }));
  EXPECT_TRUE(let_go_first);
}

TEST_F(RunnerPoolTest, ARunnerThatLiesAboutChannelGroupsIsKilled) {
  const auto pool = make("liar", 1);
  Status refused;
  pool->take([&](Result<Runner*> runner) { refused = runner.status(); });
  EXPECT_TRUE(turn([&] { return !refused.ok(); }));
}

TEST_F(RunnerPoolTest, AFullSocketKeepsTheOrder) {
  const auto pool = make("", 1);
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  ASSERT_TRUE(turn([&] { return taken; }));
  ::kill(taken->pid(), SIGSTOP);
  const std::vector<std::byte> tail(60000);
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    taken->send({.type = RunnerMessageType::kAddRegion}, tail, {},
                [&order, i](int error) { order.push_back(error ? -1 : i); });
  }
  ::kill(taken->pid(), SIGCONT);
  ASSERT_TRUE(turn([&] { return order.size() == 100; }));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  taken->stop(Runner::Stop::kKill);
}

TEST_F(RunnerPoolTest, CrashingRunnersAreNotRestartedInALoop) {
  const auto pool = make("crash", 1);
  Status refused;
  pool->take([&](Result<Runner*> runner) { refused = runner.status(); });
  EXPECT_TRUE(turn([&] { return !refused.ok(); }));
  EXPECT_EQ(refused.code(), EIO);
  EXPECT_NE(refused.message().find("status 9"), std::string::npos);
  EXPECT_LE(pool->started(), 8u);
}

TEST_F(RunnerPoolTest, AMissingProgramIsSaid) {
  const auto no_program = plain_launcher("/nonexistent/runner");
  RunnerPool pool(base.get(), RunnerProgram{.launcher = no_program.get(), .environment = {}}, 1);
  pool.start();
  Status refused;
  pool.take([&](Result<Runner*> runner) { refused = runner.status(); });
  EXPECT_TRUE(turn([&] { return !refused.ok(); }));
  EXPECT_NE(refused.message().find("could not be executed"), std::string::npos);
}

TEST_F(RunnerPoolTest, AStubbornRunnerIsKilled) {
  const auto pool = make("stubborn", 0);
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  ASSERT_TRUE(turn([&] { return taken; }));
  bool gone = false;
  taken->set_on_gone([&] { gone = true; });
  taken->stop(Runner::Stop::kAsk);
  EXPECT_TRUE(turn([&] { return gone; }));
}

TEST_F(RunnerPoolTest, ARunnerThatIsToFailIsKilledWhetherItAnswersOrNot) {
  for (const char* behaviour : {"", "stubborn"}) {
    const auto pool = make(behaviour, 0);
    Runner* taken = nullptr;
    pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
    ASSERT_TRUE(turn([&] { return taken; }));
    bool gone = false;
    taken->set_on_gone([&] { gone = true; });
    const auto before = std::chrono::steady_clock::now();
    taken->fail(702);
    taken->fail(719);
    taken->stop(Runner::Stop::kAsk);
    EXPECT_TRUE(turn([&] { return gone; })) << behaviour;
    EXPECT_LT(std::chrono::steady_clock::now() - before, kEndTimeout) << behaviour;
  }
}

TEST_F(RunnerPoolTest, NewLaunchConfigsReplaceWarmRunnersAndLeaveTakenOnes) {
  const auto pool = make("", 1);
  ASSERT_TRUE(turn([&] { return pool->warm() == 1; }));
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  ASSERT_TRUE(turn([&] { return pool->warm() == 1; }));
  const uint64_t started = pool->started();
  bool gone = false;
  taken->set_on_gone([&] { gone = true; });
  RunnerLaunchConfig launch_config;
  launch_config.variables = {"BANDSAW_SHARING=mps"};
  pool->set_launch_config(launch_config);
  EXPECT_EQ(pool->warm(), 0u);
  ASSERT_TRUE(turn([&] { return pool->warm() == 1 && pool->living() == 2; }));
  EXPECT_EQ(pool->started(), started + 1);
  EXPECT_EQ(pool->failed(), 0u);
  EXPECT_FALSE(gone);
  pool->set_launch_config(launch_config);  // the same
  EXPECT_EQ(pool->warm(), 1u);
}

TEST_F(RunnerPoolTest, RefusalsAreToldAndWaitsAreWaited) {
  const auto pool = make("", 1);
  RunnerLaunchConfig launch_config;
  launch_config.refusal = EAGAIN;
  launch_config.why = "not yet";
  pool->set_launch_config(launch_config);
  ASSERT_TRUE(turn([&] { return pool->living() == 0; }));
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  EXPECT_EQ(taken, nullptr);
  pool->set_launch_config({});
  ASSERT_TRUE(turn([&] { return taken != nullptr; }));
  launch_config.why = "there is none";
  std::vector<Status> refused;
  launch_config.refusal = EAGAIN;
  pool->set_launch_config(launch_config);
  pool->take([&](Result<Runner*> runner) { refused.push_back(runner.status()); });
  EXPECT_TRUE(refused.empty());
  launch_config.refusal = ENODEV;
  pool->set_launch_config(launch_config);
  pool->take([&](Result<Runner*> runner) { refused.push_back(runner.status()); });
  ASSERT_EQ(refused.size(), 2u);
  for (const Status& status : refused) {
    EXPECT_EQ(status.code(), ENODEV);
    EXPECT_EQ(status.message(), "there is none");
  }
}

TEST_F(RunnerPoolTest, NobodyIsStartedWhileTheDaemonDoesNotAnswer) {
  const auto pool = make("", 0);
  RunnerLaunchConfig launch_config;
  launch_config.mps = "/nonexistent";
  launch_config.socket = "/nonexistent/control";
  pool->set_launch_config(launch_config);
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.ok() ? runner.value() : nullptr; });
  for (int i = 0; i < 20; ++i) turn([n = 0]() mutable { return n++ > 0; });
  EXPECT_EQ(pool->started(), 0u);
  pool->set_launch_config({});
  ASSERT_TRUE(turn([&] { return taken != nullptr; }));
  EXPECT_EQ(taken->mps(), "");
}

TEST_F(RunnerPoolTest, AClientThatStillConnectsIsNotKilledForANewLaunchConfigOfTheSameDaemon) {
  const StandInDaemon daemon;
  ASSERT_TRUE(daemon.listener.ok());
  const auto pool = make("", 1);
  ASSERT_TRUE(turn([&] { return pool->warm() == 1; }));
  RunnerLaunchConfig launch_config = daemon.launch_config();
  pool->set_launch_config(launch_config);  // starts one, of whose being ready nobody has heard yet
  launch_config.variables = {"BANDSAW_SMS=8:0+1"};
  pool->set_launch_config(launch_config);
  EXPECT_EQ(pool->living(), 3u);
  ASSERT_TRUE(turn([&] { return pool->warm() == 1 && pool->living() == 1; }));
  EXPECT_EQ(pool->started(), 3u);
  EXPECT_EQ(pool->failed(), 0u);
}

TEST_F(RunnerPoolTest, ADaemonThatHangsDoesNotHangTheSession) {
  const StandInDaemon daemon;
  std::vector<UniqueFd> waiting;
  for (auto one = reach_unix(daemon.socket()); one.ok(); one = reach_unix(daemon.socket())) {
    waiting.push_back(std::move(one.value()));
    ASSERT_LT(waiting.size(), 10000u);
  }
  const auto pool = make("", 1);
  RunnerLaunchConfig launch_config = daemon.launch_config();
  pool->set_launch_config(launch_config);
  ASSERT_TRUE(turn([&] { return pool->living() == 0; }));
  waiting.clear();
}

TEST_F(RunnerPoolTest, ClientsOfADeadDaemonAreKilled) {
  const StandInDaemon daemon;
  ASSERT_TRUE(daemon.listener.ok());
  const auto pool = make("", 0);
  Runner *other = nullptr, *client = nullptr;
  pool->take([&](Result<Runner*> runner) { other = runner.value(); });
  ASSERT_TRUE(turn([&] { return other; }));
  RunnerLaunchConfig launch_config = daemon.launch_config();
  pool->set_launch_config(launch_config);
  pool->take([&](Result<Runner*> runner) { client = runner.value(); });
  ASSERT_TRUE(turn([&] { return client; }));
  EXPECT_EQ(client->mps(), daemon.folder);
  bool gone = false;
  client->set_on_gone([&] { gone = true; });
  const auto begin = std::chrono::steady_clock::now();
  pool->end_clients(daemon.folder + "/of-another");
  pool->end_clients(daemon.folder);
  EXPECT_TRUE(turn([&] { return gone; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kLostTimeout);
  EXPECT_EQ(pool->living(), 1u);
}

TEST_F(RunnerPoolTest, TheEndOfThePoolEndsItsRunners) {
  auto pool = make("", 1);
  Runner* taken = nullptr;
  pool->take([&](Result<Runner*> runner) { taken = runner.value(); });
  ASSERT_TRUE(turn([&] { return taken; }));
  const int pid = taken->pid();
  bool gone = false;
  taken->set_on_gone([&] { gone = true; });
  pool.reset();
  EXPECT_TRUE(gone);
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST_F(RunnerPoolTest, SaysWhenRunnersAreOfNoUse) {
  const auto good = make("", 1);
  ASSERT_TRUE(turn([&] { return good->warm() == 1; }));
  EXPECT_EQ(good->failing(), "");
  const auto bad = make("crash", 1);
  EXPECT_TRUE(turn([&] { return !bad->failing().empty(); }));
  EXPECT_NE(bad->failing().find("9"), std::string::npos) << bad->failing();
}

TEST_F(RunnerPoolTest, EndsThoseThatServeWhenTheDeviceIsLost) {
  const auto pool = make("", 1);
  Runner* taken = nullptr;
  pool->take([&](const Result<Runner*>& runner) { taken = runner.value(); });
  ASSERT_TRUE(turn([&] { return taken; }));
  bool gone = false;
  taken->set_on_gone([&] { gone = true; });
  RunnerLaunchConfig lost;
  lost.refusal = ENODEV;
  lost.why = "the device is lost";
  pool->set_launch_config(lost);
  pool->end_all();
  EXPECT_TRUE(turn([&] { return gone && pool->living() == 0; }));
  int code = 0;
  pool->take([&](const Result<Runner*>& runner) { code = runner.status().code(); });
  EXPECT_EQ(code, ENODEV);
}

}  // namespace
}  // namespace bandsaw
