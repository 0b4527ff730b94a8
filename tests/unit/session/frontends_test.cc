// The two frontends with runners of the test's own.
#include <sys/socket.h>

#include <array>
#include <nlohmann/json.hpp>

#include "backend/control/json_link.h"
#include "backend/control/packet.h"
#include "backend/session/direct_frontend.h"
#include "backend/session/vm_frontend.h"
#include "guest-driver/uapi/vgpu_ring.h"
#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

class FrontendTest : public ::testing::Test {
 protected:
  template <typename Done>
  bool turn(Done done) {
    for (int i = 0; i < 400 && !done(); ++i) {
      const timeval tick = to_timeval(std::chrono::milliseconds(5));
      event_base_loopexit(base.get(), &tick);
      event_base_dispatch(base.get());
    }
    return done();
  }
  BasePtr base{event_base_new()};
  FakeSource source;
  UsagePageOwner usage_page = std::move(UsagePageOwner::open(1u << 30).value());
};

class DirectFrontendTest : public FrontendTest {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
    ProcessesConfig config;
    config.vgpu = "test";
    config.arena_bytes = 16u << 20;
    frontend = std::make_unique<DirectFrontend>(
        base.get(), std::move(listen_unix(path(), SOCK_SEQPACKET, 0600).value()), config, &source, &usage_page);
  }
  void TearDown() override {
    frontend.reset();
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/direct.sock"; }
  UniqueFd connected() {
    UniqueFd socket = std::move(connect_unix(path(), SOCK_SEQPACKET).value());
    evutil_make_socket_nonblocking(socket.get());
    return socket;
  }
  static void say(const UniqueFd& socket, const std::vector<std::byte>& bytes) {
    ASSERT_TRUE(send_packet(socket.get(), bytes, {}, {}).ok());
  }
  // The next reply's status, -1 at the end of the connection, -2 when nothing comes.
  int answer(const UniqueFd& socket, std::vector<UniqueFd>* fds = nullptr) {
    std::array<std::byte, 256> buffer;
    int status = -2;
    turn([&] {
      for (const auto& runner : source.runners) runner->answer_all();
      const auto length = receive_packet(socket.get(), buffer, fds);
      if (!length.ok()) return length.status().code() != EAGAIN && (status = -1, true);
      if (length.value() == 0) return status = -1, true;
      vgpu_ctl_reply reply;
      std::memcpy(&reply, buffer.data(), sizeof reply);
      status = static_cast<int>(reply.status);
      return true;
    });
    return status;
  }
  std::string folder_;
  std::unique_ptr<DirectFrontend> frontend;
};

TEST_F(DirectFrontendTest, AConnectionIsAProcess) {
  UniqueFd client = connected();
  say(client, create_process(1));
  std::vector<UniqueFd> fds;
  EXPECT_EQ(answer(client, &fds), 0);
  ASSERT_EQ(fds.size(), 2u);
  EXPECT_EQ(::ftruncate(fds[0].get(), 0), -1);  // sealed
  EXPECT_EQ(frontend->processes().at(0)["pid"], ::getpid());
  say(client, create_process(2));
  EXPECT_EQ(answer(client), EAGAIN);
  client.reset();
  EXPECT_TRUE(turn([&] { return source.last().asked && frontend->connections() == 0; }));
  EXPECT_EQ(usage_page.taken(), 1u);  // until the runner is reaped
  source.last().die();
  EXPECT_EQ(usage_page.taken(), 0u);
}

TEST_F(DirectFrontendTest, ADyingRunnerClosesOnlyItsConnection) {
  UniqueFd first = connected(), second = connected();
  say(first, create_process(1));
  ASSERT_EQ(answer(first), 0);
  FakeRunner& dying = source.last();
  say(second, create_process(1));
  ASSERT_EQ(answer(second), 0);
  dying.die();
  EXPECT_EQ(answer(first), -1);
  say(second, simple(VGPU_CTL_PING, 1));
  EXPECT_EQ(answer(second), 0);
}

TEST_F(DirectFrontendTest, GarbageIsAnsweredAndOversizeIsCutOff) {
  UniqueFd client = connected();
  say(client, std::vector<std::byte>(3));
  EXPECT_EQ(answer(client), EINVAL);
  say(client, std::vector<std::byte>(100000));
  EXPECT_EQ(answer(client), -1);
}

TEST_F(DirectFrontendTest, AClientThatNeverListensIsCutOff) {
  UniqueFd client = connected();
  const auto ping = simple(VGPU_CTL_PING, 0);
  bool cut = false;
  for (int i = 0; i < 5000 && !cut; ++i) {
    const Status status = send_packet(client.get(), ping, {}, {});
    cut = status.code() == EPIPE || status.code() == ECONNRESET;
    if (i % 16 == 0) event_base_loop(base.get(), EVLOOP_NONBLOCK);
    if (status.code() == EAGAIN) event_base_loop(base.get(), EVLOOP_NONBLOCK);
  }
  EXPECT_TRUE(cut);
}

class VmFrontendTest : public FrontendTest {
 protected:
  void SetUp() override {
    ProcessesConfig config;
    config.vgpu = "test";
    frontend = std::make_unique<VmFrontend>(base.get(), config, &source, &usage_page);
  }
  int ask(const std::vector<std::byte>& bytes) {
    int status = -1;
    std::vector<uint8_t> copy(bytes.size());
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    frontend->on_control(std::move(copy),
                         [&](const vgpu_ctl_reply& reply) { status = static_cast<int>(reply.status); });
    for (const auto& runner : source.runners) runner->answer_all();
    return status;
  }
  void add_ram(uint32_t id, uint64_t gpa, uint64_t bytes) {
    Ram ram = make_ram(id, gpa, bytes);
    frontend->on_ram_added(
        {.id = id, .gpa = gpa, .bytes = bytes, .fd = std::move(ram.fd), .offset = 0, .writable = true});
  }
  std::unique_ptr<VmFrontend> frontend;
};

TEST_F(VmFrontendTest, AVmFromBootToItsEnd) {
  frontend->on_connected();
  add_ram(1, 0, 0xa0000);
  add_ram(2, 0x100000, 16u << 20);
  frontend->on_driver_ready();
  ASSERT_EQ(ask(create_process(1)), 0);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_RING, 1, 0, 0, {{0x100000, VGPU_RING_BYTES}})), 0);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 0, 4096, {{0x9f000, 0x2000}})), EFAULT);  // into the hole
  bool removed = false;
  frontend->on_ram_removed(1, [&] { removed = true; });
  source.last().answer_all();
  EXPECT_TRUE(removed);
  bool reset = false;
  frontend->on_reset([&] { reset = true; });
  EXPECT_FALSE(reset);
  source.last().die();
  EXPECT_TRUE(reset);
  ASSERT_EQ(ask(create_process(1)), 0);
  frontend->on_disconnected();
  source.last().die();
  EXPECT_EQ(frontend->processes().ram().total_bytes(), 0u);
  EXPECT_EQ(usage_page.taken(), 0u);
  frontend->on_connected();
  add_ram(3, 0, 1u << 20);
  EXPECT_EQ(ask(create_process(1)), 0);
}

TEST_F(VmFrontendTest, UnusableRamIsLeftOut) {
  add_ram(1, 100, 0x1000);
  EXPECT_EQ(frontend->processes().ram().total_bytes(), 0u);
}

}  // namespace
}  // namespace bandsaw
