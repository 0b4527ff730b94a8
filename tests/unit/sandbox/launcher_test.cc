// What the launcher starts, and in what. Where the host forbids namespaces there is nothing to look at.
#include "backend/sandbox/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/sandbox/device_files.h"

namespace bandsaw {
namespace {

namespace fs = std::filesystem;
constexpr uid_t kSession = 61000, kRunner = 61001;
constexpr int kReport = 3;

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(name);
    ::chmod(name, 0755);
    for (const char* part : {"staging", "state", "mps.d/k1/pipe", "mps.d/k2/pipe"})
      fs::create_directories(folder_ / part);
    for (const char* part : {"mps.d/k1/pipe/control", "mps.d/k2/pipe/control", "secret"})
      std::ofstream(folder_ / part) << 1;
  }
  void TearDown() override { fs::remove_all(folder_); }

  bool start(bool gpu) {
    const bool root = ::geteuid() == 0;
    auto started = Launcher::start({.session_uid = root ? kSession : 0,
                                    .runner_uid = root ? kRunner : 0,
                                    .program = PROBE,
                                    .state = folder_ / "state",
                                    .staging = folder_ / "staging",
                                    .mps = folder_ / "mps.d",
                                    .gpu = gpu,
                                    .environment = environment_});
    lacks_ = started.status().message();
    if (started.status().code() == ENOTSUP) return false;  // this host lacks some of it
    EXPECT_TRUE(started.ok()) << started.status().message();
    if (!started.ok()) return false;
    launcher_ = std::move(started.value());
    lacks_ = launcher_->measures().lacks;
    return (" " + launcher_->measures().has + " ").find(" root ") != std::string::npos;
  }

  // The words that the program has written; `pid`: of it, to be reaped by the caller.
  std::vector<std::string> report(const std::string& paths, RunnerTask task, const std::string& mps, pid_t* pid) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const UniqueFd ours(ends[0]);
    UniqueFd theirs(ends[1]);
    const std::vector<std::string> environment = {"BANDSAW_PROBE=" + paths};
    const auto launched = launcher_->launch({.task = task, .argument = "1", .mps = mps, .environment = environment},
                                            theirs.get(), kReport);
    EXPECT_TRUE(launched.ok()) << launched.status().message();
    *pid = launched.ok() ? launched.value() : -1;
    theirs.reset();
    char text[512] = {};
    EXPECT_GE(::read(ours.get(), text, sizeof text - 1), 0);
    std::istringstream words(text);
    return {std::istream_iterator<std::string>(words), {}};
  }
  std::vector<std::string> report(const std::string& paths, const std::string& mps = "",
                                  RunnerTask task = RunnerTask::kServe) {
    pid_t pid = -1;
    auto words = report(paths, task, mps, &pid);
    EXPECT_EQ(::waitpid(pid, &status_, 0), pid);
    number_ = pid;
    return words;
  }

  fs::path folder_;
  std::vector<std::string> environment_;  // of runners
  std::string lacks_;                     // why start() returned false
  std::unique_ptr<Launcher> launcher_;
  int status_ = -1;
  pid_t number_ = 0;
};

using Words = std::vector<std::string>;

TEST_F(LauncherTest, OffHidesNoFiles) {
  if (::geteuid() != 0) GTEST_SKIP() << "as root";
  auto started = Launcher::start({.mode = SandboxMode::kOff,
                                  .session_uid = kSession,
                                  .runner_uid = kRunner,
                                  .program = PROBE,
                                  .state = folder_ / "state",
                                  .staging = folder_ / "staging",
                                  .gpu = true});
  ASSERT_TRUE(started.ok()) << started.status().message();
  launcher_ = std::move(started.value());
  const std::string has = " " + launcher_->measures().has + " ";
  for (const char* absent : {" root ", " pid ", " landlock ", " user "})
    EXPECT_EQ(has.find(absent), has.npos) << absent;
  EXPECT_NE(has.find(" users "), has.npos);
  const auto words = report("capabilities /dev/shm /proc/cpuinfo /sys /tmp " + (folder_ / "secret").string());
  EXPECT_EQ(words, (Words{std::to_string(number_), std::to_string(kRunner), "0", "yes", "yes", "yes", "yes", "yes"}));
  EXPECT_EQ(status_, 0);
}

TEST_F(LauncherTest, ARunnerHasItsRootAndItsUser) {
  if (!start(false)) GTEST_SKIP() << lacks_;
  const auto words = report("capabilities " + (folder_ / "state").string() +
                            " /dev/null /etc/passwd /sys /tmp/x /bin/sh " + (folder_ / "secret").string());
  const std::string user = std::to_string(::geteuid() == 0 ? kRunner : ::geteuid());
  EXPECT_EQ(words, (Words{"1", user, "0", "yes", "yes", "no", "no", "no", "no", "no"}));
  EXPECT_EQ(status_, 0);
}

// As where a driver's folder has both, and links between them.
TEST_F(LauncherTest, FoldersOfLibrariesMayBeLinksAndLieInEachOther) {
  const fs::path libraries = folder_ / "libraries", elsewhere = folder_ / "elsewhere";
  for (const fs::path& folder : {libraries / "lib64", elsewhere}) {
    fs::create_directories(folder);
    std::ofstream(folder / "here") << 1;
  }
  fs::create_directory_symlink("lib64", libraries / "lib");
  fs::create_directory_symlink(elsewhere, libraries / "far");
  const std::string path = libraries.string();
  environment_ = {"LD_LIBRARY_PATH=" + path + ":" + path + "/lib64:" + path + "/lib:" + path + "/far:" + path +
                  "/none"};
  if (!start(false)) {
    EXPECT_EQ(lacks_.find("in a root"), lacks_.npos) << lacks_;
    GTEST_SKIP() << lacks_;
  }
  const auto words = report(path + "/lib64/here " + path + "/lib/here " + path + "/far/here " + path + "/none");
  ASSERT_EQ(words.size(), 6u);
  EXPECT_EQ(Words(words.begin() + 2, words.end()), (Words{"yes", "yes", "yes", "no"}));
}

// NVIDIA's driver library names its threads so.
TEST_F(LauncherTest, ARunnerMayNameItsThreads) {
  if (!start(true)) GTEST_SKIP() << lacks_;
  const auto words = report("rewrite:/proc/self/comm");
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words.back(), "yes");
}

// Whoever owns it: what a software device's runners compile, their session writes.
// As systemd's unit has it.
TEST_F(LauncherTest, AUmaskForOneUserClosesNoRoot) {
  const mode_t before = ::umask(0077);
  const bool has_root = start(false);
  ::umask(before);
  if (!has_root) GTEST_SKIP() << lacks_;
  report("/");
  EXPECT_EQ(status_, 0) << "126: its program lies in folders that are another user's alone";
}

TEST_F(LauncherTest, OnlyNvidiasDriverMayFillTheFolderOnDisk) {
  for (const bool gpu : {false, true}) {
    ::chmod((folder_ / "state").c_str(), 0777);
    if (!start(gpu)) GTEST_SKIP() << lacks_;
    const auto words = report("make:" + (folder_ / "state/x").string());
    ASSERT_EQ(words.size(), 3u);
    EXPECT_EQ(words.back(), gpu ? "yes" : "closed");
    EXPECT_EQ(fs::exists(folder_ / "state/x"), gpu);
  }
}

TEST_F(LauncherTest, OnAGpuItSeesTheMachineButNoMpsDaemon) {
  if (!start(true)) GTEST_SKIP() << lacks_;
  const auto words =
      report("/sys /tmp /dev/shm /proc/cpuinfo /.host/dev/null /etc/passwd " + (folder_ / "mps.d/k1/pipe").string());
  ASSERT_EQ(words.size(), 9u);
  EXPECT_EQ(Words(words.begin() + 2, words.end()), (Words{"yes", "yes", "yes", "yes", "closed", "no", "no"}));
}

TEST_F(LauncherTest, AClientOfMpsSeesItsDaemonAlone) {
  if (!start(true)) GTEST_SKIP() << lacks_;
  const std::string all = (folder_ / "mps.d").string(), own = all + "/k1/pipe";
  const auto words = report(own + "/control " + all + "/k2/pipe/control /dev/shm /etc/passwd", own);
  ASSERT_EQ(words.size(), 6u);
  EXPECT_EQ(Words(words.begin() + 2, words.end()), (Words{"yes", "no", "yes", "no"}));
  for (const std::string& other :
       {folder_.string(), all + "/../state/pipe", all + "/../pipe", all + "/k1", std::string("/etc/pipe")}) {
    EXPECT_TRUE(report("/etc/passwd", other).empty()) << other;
    EXPECT_TRUE(WIFEXITED(status_) && WEXITSTATUS(status_) == 125) << other;
  }
}

// NVIDIA's driver library tells them apart by these numbers, and the checkpointer names them so.
TEST_F(LauncherTest, RunnersOfAGpuHaveDifferentNumbersThatTheCheckpointerKnows) {
  if (!start(true)) GTEST_SKIP() << lacks_;
  pid_t pids[2] = {-1, -1};
  std::string numbers[2];
  for (const int n : {0, 1}) {
    const auto words = report("wait", RunnerTask::kServe, "", &pids[n]);
    ASSERT_EQ(words.size(), 3u);
    numbers[n] = words.front();
    const auto known = launcher_->number_for_checkpointer(pids[n]);
    ASSERT_TRUE(known.ok()) << known.status().message();
    EXPECT_EQ(std::to_string(known.value()), words.front());
  }
  EXPECT_NE(numbers[0], numbers[1]);
  const auto words = report("/proc/" + numbers[0] + "/comm", "", RunnerTask::kCheckpointer);
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words.back(), "yes");
  for (const pid_t pid : pids) {
    launcher_->kill(pid);
    ::waitpid(pid, nullptr, 0);
    EXPECT_EQ(launcher_->number_for_checkpointer(pid).status().code(), ESRCH);
  }
}

TEST_F(LauncherTest, RunnersOfAGpuEndWithTheLauncher) {
  if (!start(true)) GTEST_SKIP() << lacks_;
  if (lacks_.find("pid:") != lacks_.npos) GTEST_SKIP() << lacks_;
  pid_t pid = -1;
  report("wait", RunnerTask::kServe, "", &pid);
  launcher_ = nullptr;
  EXPECT_EQ(::waitpid(pid, &status_, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL) << status_;
}

TEST_F(LauncherTest, ItKillsWhatItHasLaunchedAndNothingElse) {
  start(false);
  const pid_t own = ::fork();
  if (own == 0) ::pause();
  pid_t pid = -1;
  report("wait", RunnerTask::kServe, "", &pid);
  launcher_->kill(own);
  launcher_->kill(pid);
  ASSERT_EQ(::waitpid(pid, &status_, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL) << status_;
  EXPECT_EQ(::waitpid(own, &status_, WNOHANG), 0);
  ::kill(own, SIGKILL);
  ::waitpid(own, &status_, 0);
}

TEST_F(LauncherTest, RequiredIsAnErrorWhereARunnerWouldLackSomething) {
  const auto started = Launcher::start(
      {.mode = SandboxMode::kRequired, .program = PROBE, .staging = folder_ / "staging"});  // no users of their own
  ASSERT_FALSE(started.ok());
  EXPECT_NE(started.status().message().find("this host lacks some of it: users"), std::string::npos)
      << started.status().message();
}

class DeviceFilesTest : public LauncherTest {
 protected:
  void SetUp() override {
    LauncherTest::SetUp();
    for (const char* name :
         {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "null", "nvidia-caps/nvidia-cap1"}) {
      fs::create_directories((folder_ / "dev" / name).parent_path());
      std::ofstream(folder_ / "dev" / name) << 1;
    }
    for (const auto& [bus, uuid, minor] : {std::tuple{"0000:0a:00.0", "GPU-a", "1"}, {"0000:0b:00.0", "GPU-b", "7"}}) {
      const fs::path gpu = folder_ / "driver/gpus" / bus;
      fs::create_directories(gpu);
      std::ofstream(gpu / "information") << "Model: \t\t Some GPU\nGPU UUID:   \t " << uuid << "\nDevice Minor: \t "
                                         << minor << "\n";
    }
  }
  Words of(const std::string& gpu, bool peers = false) {
    return files_of_gpu(gpu, peers, folder_ / "dev", folder_ / "driver");
  }
};

TEST_F(DeviceFilesTest, OneGpuHasItsOwn) {
  EXPECT_EQ(of("GPU-a"), (Words{"nvidia-uvm", "nvidia1", "nvidiactl"}));
  EXPECT_EQ(of("MIG-c"), (Words{"nvidia-caps/nvidia-cap1", "nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"}));
  EXPECT_EQ(of("GPU-a", true), (Words{"nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"})) << "it reaches others' memory";
  // Of one whose file is not there, and of one that the driver does not know, those of all.
  for (const char* unknown : {"GPU-b", "GPU-x", ""}) {
    EXPECT_EQ(of(unknown), (Words{"nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"})) << unknown;
  }
}

}  // namespace
}  // namespace bandsaw
