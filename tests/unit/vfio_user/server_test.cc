// The byte stream: messages in pieces, messages that make no sense, clients that go.
#include "hypervisor/vfio_user/server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/pci_regs.h>
#include <linux/virtio_config.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <filesystem>

#include "tests/unit/virtio/fake_guest.h"

namespace bandsaw::vfio_user {
namespace {

class ServerTest : public testing::Test {
 protected:
  ServerTest()
      : base_(event_base_new(), event_base_free),
        device_({}, sink_),
        server_(base_.get(), device_),
        path_(testing::TempDir() + "vfio-user-test-" + std::to_string(getpid())) {
    EXPECT_TRUE(server_.listen(path_).ok());
  }
  void turn() {
    for (int i = 0; i < 8 && !elsewhere_; ++i) event_base_loop(base_.get(), EVLOOP_NONBLOCK);
  }
  UniqueFd connect() {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    turn();
    return fd;
  }
  static std::vector<uint8_t> message(uint16_t command, std::vector<uint8_t> payload, uint32_t flags = 0,
                                      uint32_t size = 0) {
    Header header{7, command, size ? size : static_cast<uint32_t>(sizeof(Header) + payload.size()), flags, 0};
    std::vector<uint8_t> bytes(sizeof(header));
    std::memcpy(bytes.data(), &header, sizeof(header));
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
  }
  void send_all(const UniqueFd& fd, const std::vector<uint8_t>& bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    turn();
  }
  // The next reply's header; bytes 0 when there is none, 1 when the server has closed.
  Header reply(const UniqueFd& fd) {
    Header header{};
    const ssize_t count = recv(fd.get(), &header, sizeof(header), 0);
    if (count == 0) header.bytes = 1;
    if (count == sizeof(header) && header.bytes > sizeof(header)) {
      std::vector<uint8_t> rest(header.bytes - sizeof(header));
      EXPECT_EQ(recv(fd.get(), rest.data(), rest.size(), 0), static_cast<ssize_t>(rest.size()));
    }
    return header;
  }
  void greet(const UniqueFd& fd) {
    send_all(fd, message(kVersion, {0, 0, 1, 0}));
    EXPECT_EQ(reply(fd).flags, kTypeReply);
  }
  bool alive(const UniqueFd& fd) {
    send_all(fd, message(kDeviceReset, {}));
    return reply(fd).flags == kTypeReply;
  }

  std::unique_ptr<event_base, void (*)(event_base*)> base_;
  virtio::FakeSink sink_;
  virtio::Device device_;
  Server server_;
  std::string path_;
  bool elsewhere_ = false;  // another process serves
};

TEST_F(ServerTest, PutsMessagesTogetherByteByByte) {
  const UniqueFd fd = connect();
  for (uint8_t byte : message(kVersion, {0, 0, 1, 0})) send_all(fd, {byte});
  const Header header = reply(fd);
  EXPECT_EQ(header.id, 7);
  EXPECT_EQ(header.command, kVersion);
  EXPECT_EQ(header.flags, kTypeReply);
}

TEST_F(ServerTest, AnswersSeveralMessagesOfOneWrite) {
  const UniqueFd fd = connect();
  auto bytes = message(kVersion, {0, 0, 1, 0});
  for (int i = 0; i < 3; ++i)
    for (uint8_t byte : message(kDeviceReset, {}, i == 1 ? kFlagNoReply : 0)) bytes.push_back(byte);
  send_all(fd, bytes);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reply(fd).flags, kTypeReply);
  EXPECT_EQ(reply(fd).bytes, 0u);
}

TEST_F(ServerTest, RefusesTypesAndSizesButGoesOn) {
  const UniqueFd fd = connect();
  greet(fd);
  send_all(fd, message(kDeviceReset, {}, 2));
  EXPECT_EQ(reply(fd).error, uint32_t{EINVAL});
  send_all(fd, message(kDeviceReset, {1, 2, 3}, kTypeReply));  // a reply to nothing
  EXPECT_EQ(reply(fd).bytes, 0u);
  const uint32_t huge = kPayloadMax + 17;
  send_all(fd, message(kRegionWrite, {}, 0, huge));
  EXPECT_EQ(reply(fd).error, uint32_t{EMSGSIZE});
  for (uint32_t left = huge - 16; left > 0;) {
    const uint32_t part = std::min(left, 32768u);
    send_all(fd, std::vector<uint8_t>(part, 0xff));
    left -= part;
  }
  EXPECT_TRUE(alive(fd));
}

TEST_F(ServerTest, ClosesWhenAMessageIsShorterThanItsHeader) {
  const UniqueFd fd = connect();
  greet(fd);
  send_all(fd, message(kDeviceReset, {}, 0, 15));
  EXPECT_EQ(reply(fd).error, uint32_t{EINVAL});
  EXPECT_EQ(reply(fd).bytes, 1u);
  EXPECT_EQ(sink_.disconnects, 1);
  const UniqueFd next = connect();
  greet(next);
}

TEST_F(ServerTest, ServesOneClientAndThenTheNext) {
  UniqueFd first = connect();
  greet(first);
  const UniqueFd second = connect();
  send_all(second, message(kVersion, {0, 0, 1, 0}));
  EXPECT_EQ(reply(second).bytes, 0u);  // waits
  EXPECT_TRUE(device_.connected());
  first.reset();
  turn();
  EXPECT_EQ(sink_.disconnects, 1);
  EXPECT_EQ(sink_.connects, 2);
  EXPECT_EQ(reply(second).flags, kTypeReply);
}

TEST_F(ServerTest, TheOtherSocketIsTheDeviceWithoutMsix) {
  UniqueFd listening(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string first = std::exchange(path_, path_ + "-live");
  path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listening.get(), 4), 0);
  ASSERT_TRUE(server_.adopt(std::move(listening), Server::Interrupts::kLine).ok());
  UniqueFd live = connect();
  greet(live);
  EXPECT_EQ(device_.pci().interrupts(), Server::Interrupts::kLine);
  std::filesystem::remove(std::exchange(path_, first));
  const UniqueFd waits = connect();
  send_all(waits, message(kVersion, {0, 0, 1, 0}));
  EXPECT_EQ(reply(waits).bytes, 0u) << "one client at a time, whichever the socket";
  EXPECT_EQ(device_.pci().interrupts(), Server::Interrupts::kLine);
  live.reset();
  turn();
  EXPECT_EQ(reply(waits).flags, kTypeReply);
  EXPECT_EQ(device_.pci().interrupts(), Server::Interrupts::kMsix);
}

TEST_F(ServerTest, SurvivesClientsThatGoAtAnyByte) {
  const auto bytes = message(kDmaMap, std::vector<uint8_t>(32));
  for (size_t count = 0; count < bytes.size(); ++count) {
    UniqueFd fd = connect();
    greet(fd);
    send_all(fd, {bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count)});
    fd.reset();
    turn();
    EXPECT_FALSE(device_.connected());
  }
}

TEST_F(ServerTest, TakesDescriptorsWithTheirMessage) {
  const UniqueFd fd = connect();
  greet(fd);
  const virtio::FakeRam ram(0, 1 << 20);
  DmaMap map{32, 3, 0, 0, 1 << 20};
  std::vector<uint8_t> payload(sizeof(map));
  for (int count : {1, 9}) {
    std::memcpy(payload.data(), &map, sizeof(map));
    auto bytes = message(kDmaMap, payload);
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 9)]{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * static_cast<size_t>(count));
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int) * static_cast<size_t>(count));
    const UniqueFd ram_fd = ram.dup_fd();
    for (int i = 0; i < count; ++i) {
      const int value = ram_fd.get();
      std::memcpy(CMSG_DATA(item) + static_cast<size_t>(i) * sizeof(int), &value, sizeof(int));
    }
    ASSERT_GT(sendmsg(fd.get(), &header, 0), 0);
    turn();
    EXPECT_EQ(reply(fd).error, count == 1 ? 0u : uint32_t{EINVAL});
    map.address += 1 << 20;
  }
  EXPECT_EQ(sink_.added.size(), 1u);
}

TEST_F(ServerTest, AnswersInOrderWhenOneAnswerIsLate) {
  const UniqueFd fd = connect();
  greet(fd);
  const virtio::FakeRam ram(0x100000, 1 << 20);
  ASSERT_TRUE(device_.pci().core().add_ram(0x100000, 1 << 20, ram.dup_fd(), 0, true).ok());
  sink_.hold_removals = true;
  const DmaUnmap unmap{24, 0, 0x100000, 1 << 20};
  std::vector<uint8_t> payload(sizeof(unmap));
  std::memcpy(payload.data(), &unmap, sizeof(unmap));
  auto bytes = message(kDmaUnmap, payload);
  for (uint8_t byte : message(kDeviceReset, {})) bytes.push_back(byte);
  send_all(fd, bytes);
  EXPECT_EQ(reply(fd).bytes, 0u);
  sink_.pending[0]();
  turn();
  EXPECT_EQ(reply(fd).command, kDmaUnmap);
  EXPECT_EQ(reply(fd).command, kDeviceReset);
}

TEST_F(ServerTest, ToleratesAnAnswerAfterTheClientHasGone) {
  UniqueFd fd = connect();
  greet(fd);
  const virtio::FakeRam ram(0x100000, 1 << 20);
  ASSERT_TRUE(device_.pci().core().add_ram(0x100000, 1 << 20, ram.dup_fd(), 0, true).ok());
  sink_.hold_removals = true;
  const DmaUnmap unmap{24, 0, 0x100000, 1 << 20};
  std::vector<uint8_t> payload(sizeof(unmap));
  std::memcpy(payload.data(), &unmap, sizeof(unmap));
  send_all(fd, message(kDmaUnmap, payload));
  fd.reset();
  turn();
  ASSERT_EQ(sink_.pending.size(), 1u);
  sink_.pending[0]();
  turn();
  EXPECT_FALSE(device_.connected());
}

// QEMU aborts when it gets ECONNRESET instead of an end of file, which unread bytes would give it.
TEST_F(ServerTest, KilledWithAMessageUnreadItStillEndsTheConnectionCleanly) {
  const pid_t server = fork();
  if (server == 0) {
    event_reinit(base_.get());
    event_base_dispatch(base_.get());
    _exit(1);
  }
  elsewhere_ = true;
  UniqueFd fd = connect();
  fcntl(fd.get(), F_SETFL, 0);  // replies come from another process: wait for them
  greet(fd);
  kill(server, SIGSTOP);
  send_all(fd, message(kDeviceReset, {}));
  kill(server, SIGKILL);
  char byte = 0;
  EXPECT_EQ(recv(fd.get(), &byte, 1, 0), 0) << std::strerror(errno);
  waitpid(server, nullptr, 0);
}

// A server in another process that is killed while a message lies unread, and half of the next one.
class OutlivingTest : public ServerTest {
 protected:
  OutlivingTest() {
    held_ = path_ + ".held";
    UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    held_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    unlink(held_.c_str());
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener.get(), 4), 0);
    server_.outlive(std::move(listener));
  }
  ~OutlivingTest() override {
    waitpid(pid_, nullptr, 0);
    unlink(held_.c_str());
  }
  void start() {
    pid_ = fork();
    if (pid_ == 0) {
      event_reinit(base_.get());
      event_base_dispatch(base_.get());
      _exit(1);
    }
    server_.outlive({});
    elsewhere_ = true;
    qemu_ = connect();
    fcntl(qemu_.get(), F_SETFL, 0);
    greet(qemu_);
  }
  void kill_it() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    elsewhere_ = false;
  }
  std::vector<uint8_t> access(uint16_t command, uint32_t region, uint64_t offset, std::vector<uint8_t> data,
                              uint32_t count) {
    const RegionAccess access{offset, region, count};
    std::vector<uint8_t> payload(sizeof(access));
    std::memcpy(payload.data(), &access, sizeof(access));
    payload.insert(payload.end(), data.begin(), data.end());
    return message(command, std::move(payload));
  }
  void write(uint32_t region, uint64_t offset, std::vector<uint8_t> data) {
    const auto count = static_cast<uint32_t>(data.size());
    send_all(qemu_, access(kRegionWrite, region, offset, std::move(data), count));
    EXPECT_EQ(reply(qemu_).flags, kTypeReply);
  }
  template <typename T>
  void send_with(uint16_t command, const T& value, int fd) {
    std::vector<uint8_t> payload(sizeof(value));
    std::memcpy(payload.data(), &value, sizeof(value));
    auto bytes = message(command, std::move(payload));
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const item = CMSG_FIRSTHDR(&header);
    *item = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    std::memcpy(CMSG_DATA(item), &fd, sizeof(int));
    EXPECT_GT(sendmsg(qemu_.get(), &header, 0), 0);
    EXPECT_EQ(reply(qemu_).flags, kTypeReply);
  }

  std::string held_;
  UniqueFd qemu_;
  pid_t pid_ = 0;
};

constexpr uint64_t kStatus = 20, kConfigVector = 16;  // in the common configuration

TEST_F(OutlivingTest, AnotherServerGoesOnWithRamInterruptsAndRegisters) {
  start();
  const UniqueFd ram(memfd_create("ram", MFD_CLOEXEC)), interrupt(eventfd(0, EFD_NONBLOCK));
  ASSERT_EQ(ftruncate(ram.get(), 65536), 0);
  send_with(kDmaMap, DmaMap{sizeof(DmaMap), kDmaReadable | kDmaWritable, 0, 0x10000, 65536}, ram.get());
  send_with(
      kDeviceSetIrqs,
      IrqSet{sizeof(IrqSet), VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_PCI_MSIX_IRQ_INDEX, 0, 1},
      interrupt.get());
  write(virtio::PciFunction::kConfigSpace, PCI_COMMAND, {PCI_COMMAND_MEMORY, 0});
  write(virtio::PciFunction::kBar0, kConfigVector, {0, 0});
  write(virtio::PciFunction::kBar0, kStatus, {VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER});
  kill(pid_, SIGSTOP);
  send_all(qemu_, access(kRegionRead, virtio::PciFunction::kConfigSpace, PCI_COMMAND, {}, 2));
  kill_it();

  auto held = take_held(held_);
  ASSERT_TRUE(held.ok()) << held.status().message();
  ASSERT_TRUE(server_.go_on(std::move(held.value())).ok());
  uint64_t raised = 0;
  EXPECT_EQ(read(interrupt.get(), &raised, sizeof raised), ssize_t{sizeof raised});
  ASSERT_EQ(sink_.added.size(), 1u);
  EXPECT_EQ(sink_.added[0].gpa, 0x10000u);
  turn();
  EXPECT_EQ(reply(qemu_).command, kRegionRead);  // what lay unread
  send_all(qemu_, access(kRegionRead, virtio::PciFunction::kBar0, kStatus, {}, 1));
  uint8_t answer[sizeof(Header) + sizeof(RegionAccess) + 1];
  ASSERT_EQ(recv(qemu_.get(), answer, sizeof answer, 0), ssize_t{sizeof answer});
  EXPECT_EQ(answer[sizeof answer - 1],
            VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_NEEDS_RESET);
  EXPECT_EQ(device_.pci().registers().config[PCI_COMMAND], PCI_COMMAND_MEMORY);
}

TEST_F(OutlivingTest, OfAMessageThatHasHalfArrivedTheRestIsReadAndAnswered) {
  start();
  const auto bytes = access(kRegionWrite, virtio::PciFunction::kBar0, 0, {1, 2, 3, 4}, 4);
  const size_t first = sizeof(Header) + 5;
  ASSERT_EQ(send(qemu_.get(), bytes.data(), first, 0), static_cast<ssize_t>(first));
  usleep(100'000);  // it waits for the rest
  kill(pid_, SIGKILL);
  ASSERT_EQ(send(qemu_.get(), bytes.data() + first, bytes.size() - first, 0),
            static_cast<ssize_t>(bytes.size() - first));
  const Header header = reply(qemu_);
  EXPECT_EQ(header.command, kRegionWrite);
  EXPECT_EQ(header.error, uint32_t{EIO});
  kill_it();
  auto held = take_held(held_);
  ASSERT_TRUE(held.ok()) << held.status().message();
  ASSERT_TRUE(server_.go_on(std::move(held.value())).ok());
  EXPECT_TRUE(alive(qemu_));
}

TEST_F(OutlivingTest, WhoTakesItAndGoesOnWithNothingEndsItCleanly) {
  start();
  kill(pid_, SIGSTOP);
  send_all(qemu_, message(kDeviceReset, {}));
  kill_it();
  ASSERT_TRUE(take_held(held_).ok());
  char byte = 0;
  EXPECT_EQ(recv(qemu_.get(), &byte, 1, 0), 0) << std::strerror(errno);
  EXPECT_EQ(take_held(held_).status().code(), ECONNREFUSED) << "there is none any more";
}

TEST_F(OutlivingTest, WhereNobodyComesAnyMoreItIsEndedCleanly) {
  start();
  kill(pid_, SIGSTOP);
  send_all(qemu_, message(kDeviceReset, {}));
  kill_it();
  const UniqueFd asking(socket(AF_UNIX, SOCK_SEQPACKET, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  held_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::connect(asking.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(send(asking.get(), &kEnd, 1, 0), 1);
  char byte = 0;
  EXPECT_EQ(recv(qemu_.get(), &byte, 1, 0), 0) << std::strerror(errno);
  EXPECT_EQ(recv(asking.get(), &byte, 1, 0), 0);
}

TEST_F(ServerTest, ReplacesAStaleSocketAndRefusesLongPaths) {
  Server other(base_.get(), device_);
  EXPECT_EQ(other.listen(std::string(108, 'x')).code(), ENAMETOOLONG);
  EXPECT_FALSE(other.listen("/nonexistent/folder/sock").ok());
  EXPECT_TRUE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace bandsaw::vfio_user
