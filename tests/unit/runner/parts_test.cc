// The small parts: output, usage page, the link to the session.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <functional>
#include <thread>

#include "backend/runner/service.h"
#include "backend/runner/wire/output.h"
#include "backend/sandbox/system_calls.h"
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {
namespace {

TEST(OutputTest, ComesBackInPiecesAndInOrder) {
  Output output;
  EXPECT_FALSE(output.pending());
  output.print("one ");
  output.print("two");
  EXPECT_TRUE(output.pending());
  EXPECT_EQ(output.fetch(5), "one t");
  EXPECT_TRUE(output.pending());
  EXPECT_EQ(output.fetch(100), "wo");
  EXPECT_FALSE(output.pending());
}

TEST(OutputTest, DropsTheOldestAndSaysSo) {
  Output output;
  const std::string line(1023, 'x');
  for (int i = 0; i < 2000; ++i) output.print(line + "\n");
  output.print("the end\n");
  std::string all;
  while (output.pending()) all += output.fetch(60000);
  EXPECT_LE(all.size(), Output::kMax + 100);
  EXPECT_EQ(all.substr(0, 1), "[");
  EXPECT_NE(all.find("were lost]\nxxx"), std::string::npos);
  EXPECT_EQ(all.substr(all.size() - 8), "the end\n");
}

UniqueFd make_usage_page() {
  UniqueFd fd(memfd_create("usage page", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), sizeof(UsagePage)), 0);
  return fd;
}

UniqueFd make_limits_page(int64_t share) {
  UniqueFd fd(memfd_create("limits page", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), sizeof(LimitsPage)), 0);
  EXPECT_EQ(pwrite(fd.get(), &share, sizeof share, 0), static_cast<ssize_t>(sizeof share));
  const uint32_t streams = 3;
  EXPECT_EQ(pwrite(fd.get(), &streams, sizeof streams, offsetof(LimitsPage, most) + sizeof(uint32_t)),
            static_cast<ssize_t>(sizeof streams));
  return fd;
}

TEST(UsagePageTest, TwoRunnersCannotPassTheShareTogether) {
  const UniqueFd fd = make_usage_page(), limits = make_limits_page(1000);
  UsagePageView first, second;
  ASSERT_TRUE(first.map(fd, 0, limits).ok());
  ASSERT_TRUE(second.map(fd, 1, limits).ok());
  EXPECT_TRUE(first.charge(600));
  EXPECT_FALSE(second.charge(401));
  EXPECT_TRUE(second.charge(400));
  EXPECT_FALSE(first.charge(1));
  EXPECT_FALSE(first.charge(std::numeric_limits<int64_t>::max()));
  first.release_all();
  EXPECT_EQ(second.used(), 400u);
  EXPECT_TRUE(second.charge(600));
  EXPECT_FALSE(UsagePageView().map(fd, kUsageSlots, limits).ok());
}

// A child that was put under the filter ended well; where there are no filters it exits with 77.
void expect_well(pid_t child) {
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RunnerSandbox, AllowsThreadsAndNothingThatReachesOut) {
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(1);
    if (!limit_system_calls(false).ok()) _exit(77);  // forbidden where this runs
    bool ran = false;
    std::thread([&] { ran = true; }).join();
    if (!ran) _exit(2);
    if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || errno != EPERM) _exit(3);
    if (fork() >= 0 || errno != EPERM) _exit(4);
    if (kill(getppid(), 0) == 0) _exit(5);
    if (syscall(SYS_tgkill, getpid(), getpid(), 0) != 0) _exit(6);
    if (syscall(SYS_tgkill, getppid(), getppid(), 0) == 0 || errno != EPERM) _exit(8);
    if (prctl(PR_SET_DUMPABLE, 1) == 0 || errno != EINVAL) _exit(9);
    if (prctl(PR_SET_NAME, "well") != 0) _exit(10);
    void* page = mmap(nullptr, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    _exit(page == MAP_FAILED ? 7 : 0);
  }
  expect_well(child);
}

TEST(RunnerSandbox, WhatNoRunnerDoesEndsIt) {
  char* const nothing[] = {nullptr};
  const std::function<long()> calls[] = {
      [&] { return execve("/bin/true", nothing, nothing); }, [] { return syscall(SYS_ptrace, 0, 0, nullptr, nullptr); },
      [] { return syscall(SYS_unshare, CLONE_NEWUSER); }, [] { return syscall(SYS_setns, 0, 0); },
      [] { return syscall(SYS_mount, nullptr, "/", nullptr, 0, nullptr); }};
  for (const auto& call : calls) {
    const pid_t child = fork();
    if (child == 0) _exit(limit_system_calls(false).ok() ? static_cast<int>(call()) : 77);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters here";
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
  }
}

TEST(RunnerSandbox, AClientOfMpsMayMakeUnixSocketsAndNoOthers) {
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(1);
    if (!limit_system_calls(true, true).ok()) _exit(77);
    sockaddr_un nowhere{AF_UNIX, "/nonexistent/control"};
    const int socket_fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (socket_fd < 0) _exit(2);
    if (connect(socket_fd, reinterpret_cast<sockaddr*>(&nowhere), sizeof nowhere) == 0 || errno != ENOENT) _exit(3);
    for (const int family : {AF_INET, AF_INET6, AF_NETLINK, AF_VSOCK}) {
      if (socket(family, SOCK_DGRAM, 0) >= 0 || errno != EPERM) _exit(4);
    }
    if (bind(socket_fd, reinterpret_cast<sockaddr*>(&nowhere), sizeof nowhere) == 0 || errno != EPERM) _exit(5);
    if (fork() >= 0 || errno != EPERM) _exit(6);
    _exit(0);
  }
  expect_well(child);
}

TEST(RunnerSandbox, ARunnerOnAGpuAsksXensGrantDeviceForNothing) {
  for (const bool listed : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(1);
      if (!limit_system_calls(true, false, listed).ok()) _exit(77);
      // What it is asked of does not matter: the filter answers first.
      if (ioctl(STDOUT_FILENO, _IOC(_IOC_NONE, 'G', 0, 24), nullptr) == 0 || errno != EPERM) _exit(2);
      if (ioctl(-1, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2a, 32), nullptr) == 0 || errno != EBADF) _exit(3);
      if (ioctl(-1, 0x30000001, nullptr) == 0 || errno != EBADF) _exit(4);
      // What changes the GPU for all, carries another request, or reads other processes' memory.
      for (const unsigned long request : {_IOWR('F', 0x4d, int), _IOWR('F', 0x39, int), _IOWR('F', 211, int), 62ul,
                                          63ul, 200ul, 9ul, static_cast<unsigned long>(TIOCSTI)}) {
        if (ioctl(-1, request, nullptr) == 0 || errno != (listed ? EPERM : EBADF)) _exit(5);
      }
      _exit(0);
    }
    expect_well(child);
  }
}

// A session of one test: sends messages, gathers answers.
class ServiceTest : public testing::Test {
 protected:
  ServiceTest() : window_(std::move(Reservation::make(kWindowBytes, {kWindowBase}).value())) {
    process_ = std::move(Process::make(&window_, [](DeviceHost* host) -> Result<std::unique_ptr<Device>> {
                           return std::unique_ptr<Device>(
                               std::make_unique<FakeDevice>(kWindowBase + VGPU_WINDOW_DEVICE_OFFSET, host));
                         }).value());
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    socket_.reset(pair[0]);
    service_ = std::make_unique<Service>(UniqueFd(pair[1]), process_.get());
    thread_ = std::thread([this] { outcome_ = service_->run(); });
    EXPECT_EQ(receive().value, kWindowBase);
  }
  ~ServiceTest() override {
    socket_.reset();
    thread_.join();
    EXPECT_TRUE(outcome_.ok());
  }

  RunnerMessage receive() {
    RunnerMessage message;
    EXPECT_EQ(recv(socket_.get(), &message, sizeof(message), 0), static_cast<ssize_t>(sizeof(message)));
    return message;
  }
  void send(RunnerMessage message, const void* tail, size_t bytes, const std::vector<int>& fds) {
    message.serial = ++serial_;
    iovec parts[] = {{&message, sizeof(message)}, {const_cast<void*>(tail), bytes}};
    alignas(cmsghdr) char control[CMSG_SPACE(5 * sizeof(int))]{};
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = 2;
    if (!fds.empty()) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* c = CMSG_FIRSTHDR(&header);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
    }
    EXPECT_GT(sendmsg(socket_.get(), &header, 0), 0);
  }
  // Sends and returns the errno of the answer.
  int ask(RunnerMessage message, const void* tail = nullptr, size_t bytes = 0, const std::vector<int>& fds = {}) {
    send(message, tail, bytes, fds);
    const RunnerMessage answer = receive();
    EXPECT_EQ(answer.type, RunnerMessageType::kDone);
    EXPECT_EQ(answer.id, serial_);
    return static_cast<int>(answer.value);
  }
  int assign() {
    AssignTail tail;
    tail.direct = 1;
    const UniqueFd usage_page = make_usage_page(), limits = make_limits_page(1 << 20), arena = ram_.fd();
    return ask({.type = RunnerMessageType::kAssign}, &tail, sizeof(tail),
               {kick_.get(), wake_.get(), usage_page.get(), limits.get(), doorbell_.get(), arena.get()});
  }

  Reservation window_;
  Ram ram_;
  UniqueFd kick_{eventfd(0, EFD_CLOEXEC)}, wake_{eventfd(0, EFD_CLOEXEC)}, doorbell_{eventfd(0, EFD_CLOEXEC)};
  std::unique_ptr<Process> process_;
  UniqueFd socket_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
  Status outcome_;
  uint32_t serial_ = 0;
};

TEST_F(ServiceTest, ServesARingAfterItsAssignment) {
  ASSERT_EQ(assign(), 0);
  const RunnerSegment ring{0, 0, 0, VGPU_RING_BYTES};
  ASSERT_EQ(ask({.type = RunnerMessageType::kAddRing, .id = 5, .value = kWindowBase, .count = 1}, &ring, sizeof(ring)),
            0);
  std::atomic<uint64_t> seq{0};
  TestRing client(ram_.data(), &seq, kick_.get());
  const auto memory = client.call<wire::MemoryInfoReply>(wire::Opcode::kMemoryInfo);
  EXPECT_EQ(memory.result, CUDA_SUCCESS);
  EXPECT_EQ(memory.reply.total, 1u << 20);
  EXPECT_EQ(ask({.type = RunnerMessageType::kDropRing, .id = 5}), 0);
}

TEST_F(ServiceTest, RefusesWhatMakesNoSense) {
  const RunnerSegment segment{0, 0, 0, kPage};
  EXPECT_EQ(ask({.type = RunnerMessageType::kAddRegion, .id = 1, .count = 1}, &segment, sizeof(segment)), EPROTO);
  EXPECT_EQ(ask({.type = RunnerMessageType::kAssign}), EPROTO);
  ASSERT_EQ(assign(), 0);
  EXPECT_EQ(assign(), EALREADY);
  EXPECT_EQ(ask({.type = RunnerMessageType::kAddRegion, .id = 1, .count = 2}, &segment, sizeof(segment)), EPROTO);
  EXPECT_EQ(ask({.type = RunnerMessageType::kAddRing, .id = 1, .count = 1}, &segment, sizeof(segment)), EINVAL);
  EXPECT_EQ(ask({.type = RunnerMessageType::kDropRegion, .id = 77}), ENOENT);
  EXPECT_EQ(ask({.type = RunnerMessageType::kRamAdd, .id = 3, .value = kPage}), EPROTO);
  EXPECT_EQ(ask({.type = static_cast<RunnerMessageType>(99)}), EPROTO);
}

TEST_F(ServiceTest, ATailThatIsTooLongForASocketComesInAFile) {
  ASSERT_EQ(assign(), 0);
  const RunnerSegment segment{0, 0, 4 * kPage, 2 * kPage};
  const UniqueFd file(memfd_create("tail", MFD_CLOEXEC));
  ASSERT_EQ(pwrite(file.get(), &segment, sizeof segment, 0), static_cast<ssize_t>(sizeof segment));
  const RunnerMessage add{.type = RunnerMessageType::kAddRegion,
                          .id = 1,
                          .flags = VGPU_REGION_DEVICE_VISIBLE,
                          .value = kWindowBase + 4 * kPage,
                          .count = 1,
                          .tail_in_file = 1};
  ASSERT_EQ(ask(add, nullptr, 0, {file.get()}), 0);
  EXPECT_TRUE(process_->memory().find(kWindowBase + 4 * kPage, 2 * kPage, Access::kWrite, true));
}

TEST_F(ServiceTest, RegionsComeAndGo) {
  ASSERT_EQ(assign(), 0);
  const RunnerSegment segment{0, 0, 4 * kPage, 2 * kPage};
  const RunnerMessage add{.type = RunnerMessageType::kAddRegion,
                          .id = 1,
                          .flags = VGPU_REGION_DEVICE_VISIBLE,
                          .value = kWindowBase + 4 * kPage,
                          .count = 1};
  ASSERT_EQ(ask(add, &segment, sizeof(segment)), 0);
  EXPECT_TRUE(process_->memory().find(kWindowBase + 4 * kPage, 2 * kPage, Access::kWrite, true));
  EXPECT_EQ(ask({.type = RunnerMessageType::kDropRegion, .id = 1}), 0);
  EXPECT_FALSE(process_->memory().find(kWindowBase + 4 * kPage, 1, Access::kRead));
}

}  // namespace
}  // namespace bandsaw::runner
