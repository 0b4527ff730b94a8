// The arbiter's thread and a session's packets of channel groups, over real sockets. In place of the driver's device
// there is a node with its number that nobody opens: enough for everything but a call of the driver.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <thread>

#include "backend/control/gate_link.h"
#include "backend/control/packet.h"
#include "backend/vgpud/arbiter/arbiter.h"

namespace bandsaw {
namespace {

// A process that a pidfd can be of.
class Child {
 public:
  Child() {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
    descriptor_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  int descriptor() const { return descriptor_.get(); }

 private:
  pid_t pid_;
  UniqueFd descriptor_;
};

class ArbiterThreadTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
    const std::string node = folder_ + "/nvidiactl";
    if (::mknod(node.c_str(), S_IFCHR | 0600, makedev(195, 255)) == 0) device_.reset(::open(node.c_str(), O_PATH));
    ::unlink(node.c_str());
    ::rmdir(folder_.c_str());
    if (!device_) GTEST_SKIP() << "no device nodes can be made here";
    arbiter_ = std::move(Arbiter::start({}).value());
    EngineShares shares;
    shares.fill({.percent = 50, .reservation = 0, .cap = 100, .priority = 0});
    ASSERT_TRUE(arbiter_->add("web0", shares).ok());
    greet();
  }
  // A new connection of the session's.
  // `first`: what is said behind the greeting, before the arbiter has the connection.
  void greet(const std::string& vgpu = "web0", const std::function<void()>& first = [] {}) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    session_.reset(pair[0]);
    UniqueFd other(pair[1]);
    const UniqueFd page(::memfd_create("usage page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(page.get(), sizeof(GrantPage)), 0);
    ASSERT_EQ(::fcntl(page.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    doorbell_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    say_hello({sizeof(GrantPage), 0}, page.get(), doorbell_.get());
    first();
    arbiter_->connect(vgpu, std::move(other));
  }
  void say_hello(const GateHello& hello, int page, int doorbell) {
    const int fds[] = {page, doorbell};
    ASSERT_TRUE(send_packet(session_.get(), std::as_bytes(std::span(&hello, 1)), {}, fds).ok());
  }
  // A connection that has not greeted.
  void connect_again() {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    session_.reset(pair[0]);
    arbiter_->connect("web0", UniqueFd(pair[1]));
  }
  // It answers, so no call holds its mutex for ever.
  bool answers() {
    for (int i = 0; i < 50; ++i) {
      arbiter_->use();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  Status say(const GateMessage& message, const std::vector<int>& fds) {
    return send_packet(session_.get(), std::as_bytes(std::span(&message, 1)), {}, fds);
  }
  Status say_groups(uint32_t slot, uint32_t count, const Child& child) {
    GateMessage message{.type = GateMessageType::kChannelGroups, .slot = slot, .channel_groups = {}};
    message.channel_groups.count = count;
    return say(message, {device_.get(), child.descriptor()});
  }
  bool comes_to(uint32_t groups, size_t vgpu = 0) {
    for (int i = 0; i < 2000; ++i) {
      if (arbiter_->use().at(vgpu).channel_groups == groups) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  bool connected() {
    pollfd socket{.fd = session_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&socket, 1, 50) == 0;
  }

  std::string folder_;
  UniqueFd device_, session_, doorbell_;
  std::unique_ptr<Arbiter> arbiter_;
};

TEST_F(ArbiterThreadTest, GroupsAreKeptBySlotUntilTheRunnerEnds) {
  Child one, two;
  ASSERT_TRUE(say_groups(0, 1, one).ok());
  ASSERT_TRUE(say_groups(255, 2, two).ok());
  EXPECT_TRUE(comes_to(3));
  ASSERT_TRUE(say_groups(0, 4, one).ok());  // a new context
  EXPECT_TRUE(comes_to(6));
  two.end();
  EXPECT_TRUE(comes_to(4));
  ASSERT_TRUE(say({.type = GateMessageType::kRunnerEnds, .slot = 0, .channel_groups = {}}, {}).ok());
  EXPECT_TRUE(comes_to(0));
  EXPECT_TRUE(connected());
}

TEST_F(ArbiterThreadTest, ARunnerThatIsGoneAlreadyLeavesNothing) {
  Child child, other;
  child.end();
  ASSERT_TRUE(say_groups(1, 1, child).ok());
  ASSERT_TRUE(say_groups(2, 5, other).ok());
  EXPECT_TRUE(comes_to(5));
}

TEST_F(ArbiterThreadTest, TheSessionsEndAndANewConnectionForgetAll) {
  Child child;
  ASSERT_TRUE(say_groups(0, 3, child).ok());
  ASSERT_TRUE(comes_to(3));
  greet();
  EXPECT_TRUE(comes_to(0));
  ASSERT_TRUE(say_groups(0, 2, child).ok());
  ASSERT_TRUE(comes_to(2));
  session_.reset();
  EXPECT_TRUE(comes_to(0));
}

// The session shares the descriptor's flags, so it can make a read of the doorbell wait at any time.
TEST_F(ArbiterThreadTest, ADoorbellThatBlocksHoldsNobodyUp) {
  ASSERT_TRUE(answers());
  ASSERT_EQ(::fcntl(doorbell_.get(), F_SETFL, 0), 0);
  uint64_t one = 1;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(::write(doorbell_.get(), &one, sizeof one), 8);
    uint64_t taken = 0;  // what was rung is gone again when the arbiter looks
    ASSERT_EQ(::read(doorbell_.get(), &taken, sizeof taken), 8);
    arbiter_->use();
  }
  Child child;
  ASSERT_TRUE(say_groups(0, 2, child).ok());
  EXPECT_TRUE(comes_to(2));
}

TEST_F(ArbiterThreadTest, GreetingsWithOtherFilesAreRefused) {
  const UniqueFd page(::memfd_create("usage page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(page.get(), sizeof(GrantPage)), 0);
  const UniqueFd bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), null(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  const auto refused = [&](const GateHello& hello, int first, int second) {
    connect_again();
    say_hello(hello, first, second);
    pollfd socket{.fd = session_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&socket, 1, 2000) == 1;
  };
  const GateHello hello{sizeof(GrantPage), 0};
  EXPECT_TRUE(refused(hello, page.get(), bell.get()));  // not sealed yet
  ASSERT_EQ(::fcntl(page.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(refused(hello, page.get(), null.get()));
  EXPECT_TRUE(refused(hello, page.get(), page.get()));
  EXPECT_TRUE(refused(hello, null.get(), bell.get()));
  EXPECT_TRUE(refused({sizeof(GrantPage), 1}, page.get(), bell.get()));
  EXPECT_TRUE(refused({sizeof(GrantPage), ~uint64_t{63}}, page.get(), bell.get()));
  EXPECT_TRUE(refused({~uint64_t{0}, 0}, page.get(), bell.get()));
  EXPECT_TRUE(refused({sizeof(GrantPage) - 1, 0}, page.get(), bell.get()));
}

TEST_F(ArbiterThreadTest, ARunnerIsToldByAPidfdAlone) {
  Child child;
  GateMessage message{.type = GateMessageType::kChannelGroups, .slot = 3, .channel_groups = {}};
  message.channel_groups.count = 1;
  ASSERT_TRUE(say(message, {device_.get(), doorbell_.get()}).ok());
  ASSERT_TRUE(say_groups(4, 2, child).ok());
  EXPECT_TRUE(comes_to(2));
  EXPECT_TRUE(connected());
}

TEST_F(ArbiterThreadTest, NonsenseIsDroppedAndTheConnectionStays) {
  Child child;
  const std::vector<std::byte> bytes(4096, std::byte{0xff});
  for (const size_t length :
       {size_t{1}, sizeof(GateMessage) - 1, sizeof(GateMessage), sizeof(GateMessage) + 1, bytes.size()})
    ASSERT_TRUE(send_packet(session_.get(), std::span(bytes).first(length), {}, {}).ok());
  const std::vector<int> many(kPacketFdsMax, device_.get());
  GateMessage message{.type = GateMessageType::kChannelGroups, .slot = 0, .channel_groups = {}};
  message.channel_groups.count = 1;
  ASSERT_TRUE(say(message, many).ok());
  ASSERT_TRUE(say(message, {}).ok());
  ASSERT_TRUE(say(message, {device_.get()}).ok());
  ASSERT_TRUE(say(message, {child.descriptor(), device_.get()}).ok());  // not the driver's device
  ASSERT_TRUE(say(message, {device_.get(), device_.get()}).ok());       // cannot be watched
  message.channel_groups.count = kChannelGroupsMax + 1;
  ASSERT_TRUE(say(message, {device_.get(), child.descriptor()}).ok());
  ASSERT_TRUE(say_groups(kGateSlots, 1, child).ok());
  ASSERT_TRUE(say_groups(0, 7, child).ok());
  EXPECT_TRUE(comes_to(7));
  EXPECT_TRUE(connected());
}

TEST_F(ArbiterThreadTest, ManyPacketsLeaveNoDescriptorsBehind) {
  Child child;
  const auto open_descriptors = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
    return count;
  };
  ASSERT_TRUE(say_groups(0, 1, child).ok());
  ASSERT_TRUE(comes_to(1));
  const int before = open_descriptors();
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(say_groups(0, 1 + i % 2, child).ok());
  ASSERT_TRUE(say_groups(0, 9, child).ok());
  ASSERT_TRUE(comes_to(9));
  for (int i = 0; i < 1000 && open_descriptors() != before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(open_descriptors(), before);
}

// Closing such a socket takes until its reader is closed, or a minute: what was written is not read.
struct SlowToClose {
  UniqueFd socket, reader;
};

SlowToClose slow_to_close() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  if (::listen(listener.get(), 1) != 0) return {};
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  UniqueFd reader(::accept(listener.get(), nullptr, nullptr));
  const linger lingering{.l_onoff = 1, .l_linger = 60};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &lingering, sizeof lingering);
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  const std::vector<char> bytes(1 << 16);
  while (::write(socket.get(), bytes.data(), bytes.size()) > 0) continue;
  ::fcntl(socket.get(), F_SETFL, 0);
  return {std::move(socket), std::move(reader)};
}

// While they wait to be closed, their session is not read, and it alone.
TEST_F(ArbiterThreadTest, DescriptorsThatAreSlowToCloseHoldTheirSessionUpAlone) {
  EngineShares shares;
  shares.fill({.percent = 50, .reservation = 0, .cap = 100, .priority = 0});
  ASSERT_TRUE(arbiter_->add("web1", shares).ok());
  Child child;
  GateMessage message{.type = GateMessageType::kChannelGroups, .slot = 0, .channel_groups = {}};
  message.channel_groups.count = 1;
  SlowToClose slow = slow_to_close();
  ASSERT_TRUE(slow.socket);
  greet("web0", [&] {  // so that the arbiter is the last to close it
    ASSERT_TRUE(say(message, {device_.get(), slow.socket.get()}).ok());
    slow.socket.reset();
  });
  ::fcntl(session_.get(), F_SETFL, O_NONBLOCK);
  int said = 0;
  for (int refused = 0; said < 3000 && refused < 300;) {
    const Status status = say_groups(0, 1 + said % 2, child);
    if (status.ok()) {
      ++said;
      refused = 0;
      continue;
    }
    ASSERT_EQ(status.code(), EAGAIN);
    ++refused;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GT(said, static_cast<int>(kGateSlots)) << "a runner in each slot would be too many";
  EXPECT_LT(said, 3000) << "all was taken while nothing could be closed";
  const UniqueFd held_up = std::move(session_);
  const UniqueFd doorbell = std::move(doorbell_);
  greet("web1");
  ASSERT_TRUE(say_groups(0, 7, child).ok());
  EXPECT_TRUE(comes_to(7, 1)) << "the other one is held up too";
  slow.reader.reset();
  session_.reset(::dup(held_up.get()));
  ::fcntl(session_.get(), F_SETFL, 0);
  ASSERT_TRUE(say_groups(0, 9, child).ok());
  EXPECT_TRUE(comes_to(9));
  EXPECT_TRUE(connected());
}

}  // namespace
}  // namespace bandsaw
