// Each command's bad forms: an error in the answer, nothing changed.
#include "hypervisor/vfio_user/commands.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "hypervisor/vfio_user/version.h"
#include "tests/unit/virtio/fake_guest.h"

namespace bandsaw::vfio_user {
namespace {

using virtio::FakeRam;
using virtio::PciFunction;

template <typename T>
std::vector<uint8_t> bytes_of(const T& value, size_t extra = 0) {
  std::vector<uint8_t> bytes(sizeof(T) + extra);
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

class CommandsTest : public testing::Test {
 protected:
  CommandsTest() : device_({}, sink_), commands_(device_.pci()) {
    EXPECT_EQ(call(kVersion, bytes_of(Version{0, 1})).error, 0);
  }
  Answer call(uint16_t command, std::vector<uint8_t> payload, std::vector<UniqueFd> fds = {}) {
    Message message;
    message.header.command = command;
    message.payload = std::move(payload);
    message.fds = std::move(fds);
    Answer result{-1, {}};
    commands_.handle(std::move(message), [&](Answer answer) { result = std::move(answer); });
    return result;
  }
  template <typename T>
  T call_for(uint16_t command, const T& request) {
    const Answer answer = call(command, bytes_of(request));
    EXPECT_EQ(answer.error, 0);
    T reply{};
    EXPECT_EQ(answer.payload.size(), sizeof(T));
    if (answer.payload.size() == sizeof(T)) std::memcpy(&reply, answer.payload.data(), sizeof(T));
    return reply;
  }
  static std::vector<UniqueFd> one(UniqueFd fd) {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(fd));
    return fds;
  }

  virtio::FakeSink sink_;
  virtio::Device device_;
  Commands commands_;
};

TEST_F(CommandsTest, WantsVersionFirstAndOnce) {
  EXPECT_EQ(call(kVersion, bytes_of(Version{0, 1})).error, EINVAL);
  commands_.forget_client();
  EXPECT_EQ(call(kDeviceReset, {}).error, EINVAL);
  EXPECT_EQ(call(kVersion, bytes_of(Version{1, 0})).error, ENOTSUP);
  EXPECT_EQ(call(kVersion, {0, 0, 0}).error, EINVAL);
  const Answer answer = call(kVersion, bytes_of(Version{0, 0}));
  ASSERT_EQ(answer.error, 0);
  EXPECT_EQ(answer.payload, bytes_of(Version{0, 0}));  // not above what was asked
}

TEST_F(CommandsTest, NegotiatesASubset) {
  const std::string_view qemu =
      R"({"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "max_msg_fds": 16,
          "max_data_xfer_size": 1048576, "pgsizes": 4096, "max_dma_maps": 65535, "write_multiple": true}})";
  const auto ours = negotiate(std::string(qemu) + '\0');
  ASSERT_TRUE(ours.ok());
  EXPECT_LE(ours.value().size(), qemu.size());
  EXPECT_NE(ours.value().find("\"max_msg_fds\":8"), std::string::npos);
  EXPECT_EQ(ours.value().find("migration"), std::string::npos);
  EXPECT_EQ(negotiate("").value(), "");
  const std::string bad[] = {"{}",
                             std::string("[]\0", 3),
                             std::string("nonsense\0", 9),
                             std::string(R"({"capabilities": 3})") + '\0',
                             std::string(R"({"capabilities": {"max_msg_fds": -1}})") + '\0',
                             std::string(R"({"capabilities": {"max_msg_fds": "9"}})") + '\0',
                             std::string(R"({"capabilities": {"pgsizes": 65536}})") + '\0',
                             std::string(10000, '[') + '\0'};
  for (const std::string& text : bad) EXPECT_FALSE(negotiate(text).ok()) << text.substr(0, 60);
}

TEST_F(CommandsTest, RefusesUnknownCommandsAndWrongSizes) {
  for (uint16_t command : {0, 11, 12, 14, 19, 255, 65535}) EXPECT_EQ(call(command, {}).error, ENOTSUP);
  for (uint16_t command : {6, 16, 17, 18}) EXPECT_EQ(call(command, {}).error, ENOTSUP);
  const struct {
    uint16_t command;
    size_t bytes;
  } sizes[] = {{kDmaMap, 32},           {kDmaUnmap, 24},      {kDeviceGetInfo, 16}, {kDeviceGetRegionInfo, 32},
               {kDeviceGetIrqInfo, 16}, {kDeviceSetIrqs, 20}, {kRegionRead, 16},    {kRegionWrite, 16},
               {kRegionWriteMulti, 8}};
  for (const auto& one_size : sizes) {
    EXPECT_EQ(call(one_size.command, std::vector<uint8_t>(one_size.bytes - 1)).error, EINVAL) << one_size.command;
    EXPECT_EQ(call(one_size.command, {}).error, EINVAL) << one_size.command;
    EXPECT_NE(call(one_size.command, std::vector<uint8_t>(one_size.bytes + 333)).error, 0) << one_size.command;
  }
  EXPECT_EQ(call(kDeviceReset, {1}).error, EINVAL);
  EXPECT_EQ(call(kDeviceReset, {}, one(virtio::make_memfd(1))).error, EINVAL);
}

TEST_F(CommandsTest, DescribesTheDevice) {
  const auto info = call_for(kDeviceGetInfo, DeviceInfo{16, 0, 0, 0});
  EXPECT_EQ(info.flags, uint32_t{VFIO_DEVICE_FLAGS_RESET | VFIO_DEVICE_FLAGS_PCI});
  EXPECT_EQ(info.regions, uint32_t{VFIO_PCI_NUM_REGIONS});
  EXPECT_EQ(call(kDeviceGetInfo, bytes_of(DeviceInfo{15, 0, 0, 0})).error, EINVAL);
  EXPECT_EQ(call_for(kDeviceGetRegionInfo, RegionInfo{32, 0, 0, 0, 0, 0}).size, 16384u);
  EXPECT_EQ(call_for(kDeviceGetRegionInfo, RegionInfo{32, 0, 7, 0, 0, 0}).size, 256u);
  EXPECT_EQ(call_for(kDeviceGetRegionInfo, RegionInfo{32, 0, 8, 0, 0, 0}).size, 0u);
  EXPECT_EQ(call(kDeviceGetRegionInfo, bytes_of(RegionInfo{32, 0, 9, 0, 0, 0})).error, EINVAL);
  EXPECT_EQ(call(kDeviceGetRegionInfo, bytes_of(RegionInfo{32, 0, UINT32_MAX, 0, 0, 0})).error, EINVAL);
  EXPECT_EQ(call_for(kDeviceGetIrqInfo, IrqInfo{16, 0, VFIO_PCI_MSIX_IRQ_INDEX, 0}).count, PciFunction::kVectors);
  EXPECT_EQ(call_for(kDeviceGetIrqInfo, IrqInfo{16, 0, VFIO_PCI_INTX_IRQ_INDEX, 0}).count, 0u);
  EXPECT_EQ(call(kDeviceGetIrqInfo, bytes_of(IrqInfo{16, 0, 5, 0})).error, EINVAL);
}

TEST_F(CommandsTest, RefusesHostileRegionAccesses) {
  const RegionAccess reads[] = {{16384, 0, 1},   {16383, 0, 2},      {UINT64_MAX, 0, 1}, {UINT64_MAX - 1, 7, 4},
                                {0, 9, 4},       {0, UINT32_MAX, 4}, {0, 2, 4},          {0, 0, 3},
                                {0, 0, 0},       {0, 7, 257},        {0, 7, UINT32_MAX}, {1ull << 40, 1, 4},
                                {0, 1, 1u << 20}};
  for (const RegionAccess& access : reads) {
    EXPECT_EQ(call(kRegionRead, bytes_of(access)).error, EINVAL) << access.offset << " " << access.region;
    if (access.count <= 1u << 20) {
      EXPECT_EQ(call(kRegionWrite, bytes_of(access, access.count)).error, EINVAL);
    }
  }
  EXPECT_EQ(call(kRegionWrite, bytes_of(RegionAccess{0, 7, 4}, 3)).error, EINVAL);  // count and size differ
  EXPECT_EQ(call(kRegionWrite, bytes_of(RegionAccess{0, 7, 4}, 5)).error, EINVAL);
  const Answer answer = call(kRegionRead, bytes_of(RegionAccess{0, 7, 4}));
  ASSERT_EQ(answer.payload.size(), 20u);
  EXPECT_EQ(answer.payload[16], 0xf4);
}

TEST_F(CommandsTest, WritesSeveralAtOnce) {
  RegionWrite8 write{{16, 7, 4}, {0, 0, 0, 0xe0}};
  std::vector<uint8_t> payload = bytes_of(uint64_t{2});
  for (int i = 0; i < 2; ++i) {
    const auto part = bytes_of(write);
    payload.insert(payload.end(), part.begin(), part.end());
    write.access.offset += 4;
  }
  EXPECT_EQ(call(kRegionWriteMulti, payload).error, 0);
  for (uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{3}, UINT64_MAX, (UINT64_MAX / 24) + 1}) {
    std::memcpy(payload.data(), &count, sizeof(count));
    EXPECT_EQ(call(kRegionWriteMulti, payload).error, EINVAL);
  }
  payload.resize(8 + 24);
  const uint64_t one_write = 1;
  const uint32_t too_long = 9;
  std::memcpy(payload.data(), &one_write, 8);
  std::memcpy(payload.data() + 8 + 12, &too_long, 4);
  EXPECT_EQ(call(kRegionWriteMulti, payload).error, EINVAL);
}

TEST_F(CommandsTest, MapsAndUnmapsGuestMemory) {
  const FakeRam ram(0, 1 << 20);
  const DmaMap map{32, 3, 0, 0x100000, 1 << 20};
  EXPECT_EQ(call(kDmaMap, bytes_of(map), one(ram.dup_fd())).error, 0);
  ASSERT_EQ(sink_.added.size(), 1u);
  EXPECT_EQ(call(kDmaMap, bytes_of(map), one(ram.dup_fd())).error, EEXIST);
  const DmaMap bad[] = {
      {31, 3, 0, 0x400000, 1 << 20},       {32, 0, 0, 0x400000, 1 << 20},   {32, 4, 0, 0x400000, 1 << 20},
      {32, 3, 0, 0x400001, 1 << 20},       {32, 3, 0, 0x400000, 0},         {32, 3, 0, 0x400000, 100},
      {32, 3, 4096, 0x400000, 1 << 20},    {32, 3, 1, 0x400000, 4096},      {32, 3, UINT64_MAX - 4095, 0x400000, 4096},
      {32, 3, 0, UINT64_MAX - 4095, 8192}, {32, 3, 0, 0x400000, 1ull << 60}};
  for (const DmaMap& one_map : bad) EXPECT_EQ(call(kDmaMap, bytes_of(one_map), one(ram.dup_fd())).error, EINVAL);
  std::vector<UniqueFd> two = one(ram.dup_fd());
  two.push_back(ram.dup_fd());
  EXPECT_EQ(call(kDmaMap, bytes_of(DmaMap{32, 3, 0, 0x400000, 4096}), std::move(two)).error, EINVAL);
  EXPECT_EQ(call(kDmaMap, bytes_of(DmaMap{32, 1, 0, 0x400000, 4096})).error, 0);  // a ROM window, not shared
  EXPECT_EQ(sink_.added.size(), 1u);
  EXPECT_EQ(call(kDmaUnmap, bytes_of(DmaUnmap{24, 0, 0x100000, 4096})).error, ENOENT);
  EXPECT_EQ(call(kDmaUnmap, bytes_of(DmaUnmap{24, 0, 0x200000, 1 << 20})).error, ENOENT);
  EXPECT_EQ(call(kDmaUnmap, bytes_of(DmaUnmap{24, 1, 0x100000, 1 << 20})).error, ENOTSUP);
  EXPECT_EQ(call(kDmaUnmap, bytes_of(DmaUnmap{23, 0, 0x100000, 1 << 20})).error, EINVAL);
  const DmaUnmap unmap{24, 0, 0x100000, 1 << 20};
  EXPECT_EQ(call(kDmaUnmap, bytes_of(unmap)).payload, bytes_of(unmap));
  EXPECT_EQ(sink_.removed.size(), 1u);
  EXPECT_EQ(call(kDmaMap, bytes_of(map), one(ram.dup_fd())).error, 0);
  EXPECT_EQ(call(kDmaUnmap, bytes_of(DmaUnmap{24, kUnmapAll, 0, 0})).error, 0);
  EXPECT_EQ(sink_.removed.size(), 2u);
}

TEST_F(CommandsTest, AnswersAnUnmapWhenTheSessionHasLetGo) {
  const FakeRam ram(0, 1 << 20);
  EXPECT_EQ(call(kDmaMap, bytes_of(DmaMap{32, 3, 0, 0, 1 << 20}), one(ram.dup_fd())).error, 0);
  sink_.hold_removals = true;
  Message message;
  message.header.command = kDmaUnmap;
  message.payload = bytes_of(DmaUnmap{24, 0, 0, 1 << 20});
  int error = -1;
  commands_.handle(std::move(message), [&](Answer answer) { error = answer.error; });
  EXPECT_EQ(error, -1);
  sink_.pending[0]();
  EXPECT_EQ(error, 0);
}

TEST_F(CommandsTest, SetsInterruptEventfds) {
  const uint32_t eventfd_trigger = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
  const uint32_t none_trigger = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
  UniqueFd event(eventfd(0, EFD_NONBLOCK));
  const auto fds = [&](int count) {
    std::vector<UniqueFd> list;
    for (int i = 0; i < count; ++i) list.emplace_back(dup(event.get()));
    return list;
  };
  EXPECT_EQ(call(kDeviceSetIrqs, bytes_of(IrqSet{20, eventfd_trigger, 2, 0, 3}), fds(3)).error, 0);
  EXPECT_EQ(call(kDeviceSetIrqs, bytes_of(IrqSet{20, none_trigger, 2, 1, 1})).error, 0);
  uint64_t count = 0;
  EXPECT_EQ(read(event.get(), &count, 8), 8);
  EXPECT_EQ(count, 1u);
  const IrqSet bad[] = {{19, eventfd_trigger, 2, 0, 3},
                        {20, eventfd_trigger, 2, 1, 3},
                        {20, eventfd_trigger, 2, UINT32_MAX, 3},
                        {20, eventfd_trigger, 2, 3, UINT32_MAX},
                        {20, eventfd_trigger, 2, 0, 2},  // three descriptors for two
                        {20, eventfd_trigger, 5, 0, 3},
                        {20, eventfd_trigger, 0, 0, 3},
                        {20, eventfd_trigger | VFIO_IRQ_SET_DATA_BOOL, 2, 0, 3},
                        {20, eventfd_trigger | VFIO_IRQ_SET_ACTION_MASK, 2, 0, 3},
                        {20, VFIO_IRQ_SET_DATA_EVENTFD, 2, 0, 3},
                        {20, eventfd_trigger | 1u << 30, 2, 0, 3},
                        {20, 0, 2, 0, 3}};
  for (const IrqSet& set : bad) EXPECT_EQ(call(kDeviceSetIrqs, bytes_of(set), fds(3)).error, EINVAL) << set.start;
  const uint32_t bool_trigger = VFIO_IRQ_SET_DATA_BOOL | VFIO_IRQ_SET_ACTION_TRIGGER;
  EXPECT_EQ(call(kDeviceSetIrqs, bytes_of(IrqSet{23, bool_trigger, 2, 0, 3}, 2)).error, EINVAL);
  EXPECT_EQ(call(kDeviceSetIrqs, bytes_of(IrqSet{23, bool_trigger, 2, 0, 3}, 3)).error, 0);
  EXPECT_EQ(read(event.get(), &count, 8), -1);  // all three were false
  EXPECT_EQ(call(kDeviceSetIrqs, bytes_of(IrqSet{20, none_trigger, 2, 0, 0})).error, 0);
  EXPECT_EQ(call(kDeviceSetIrqs, bytes_of(IrqSet{20, none_trigger, 0, 0, 0})).error, 0);
  EXPECT_EQ(call(kDeviceSetIrqs, bytes_of(IrqSet{20, none_trigger, 2, 1, 1})).error, 0);
  EXPECT_EQ(read(event.get(), &count, 8), -1);  // taken away
}

// As QEMU uses it: the line is masked when it has been told, until the guest has read the ISR register.
TEST_F(CommandsTest, AFunctionWithALineHasNoMsix) {
  PciFunction& pci = device_.pci();
  pci.use(PciFunction::Interrupts::kLine);
  const auto irqs = [&](uint32_t index) { return call_for(kDeviceGetIrqInfo, IrqInfo{16, 0, index, 0}); };
  EXPECT_EQ(irqs(VFIO_PCI_MSIX_IRQ_INDEX).count, 0u);
  EXPECT_EQ(irqs(VFIO_PCI_INTX_IRQ_INDEX).count, 1u);
  EXPECT_EQ(call_for(kDeviceGetRegionInfo, RegionInfo{32, 0, PciFunction::kBar1, 0, 0, 0}).size, 0u);
  uint8_t pin = 0, isr = 0;
  EXPECT_TRUE(pci.read(PciFunction::kConfigSpace, 0x3d, {&pin, 1}));
  EXPECT_EQ(pin, 1);

  constexpr uint32_t kSet = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
  constexpr uint32_t kUnmask = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_UNMASK;
  const auto set = [&](uint32_t flags, uint32_t start, uint32_t count, std::vector<UniqueFd> fds = {}) {
    return call(kDeviceSetIrqs, bytes_of(IrqSet{20, flags, VFIO_PCI_INTX_IRQ_INDEX, start, count}), std::move(fds))
        .error;
  };
  const UniqueFd event(eventfd(0, EFD_NONBLOCK));
  const auto told = [&] {
    eventfd_t count = 0;
    return eventfd_read(event.get(), &count) == 0 ? count : 0;
  };
  EXPECT_EQ(set(kSet, 1, 1), EINVAL);
  EXPECT_EQ(set(kSet, 0, 2), EINVAL);
  EXPECT_EQ(set(kUnmask, 0, 1, one(UniqueFd(eventfd(0, 0)))), EINVAL);
  EXPECT_EQ(set(VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_UNMASK, 0, 1), ENOTSUP);
  EXPECT_EQ(call(kDeviceSetIrqs, bytes_of(IrqSet{20, kSet, VFIO_PCI_MSIX_IRQ_INDEX, 0, 1})).error, EINVAL);

  pci.queue_interrupt(0);
  EXPECT_EQ(set(kSet, 0, 1, one(UniqueFd(dup(event.get())))), 0);
  EXPECT_EQ(told(), 1u) << "it was high before";
  pci.queue_interrupt(1);
  EXPECT_EQ(told(), 0u) << "masked since";
  EXPECT_EQ(set(kUnmask, 0, 1), 0);
  EXPECT_EQ(told(), 1u) << "nobody has read the register";
  EXPECT_TRUE(pci.read(PciFunction::kBar0, 0x1000, {&isr, 1}));
  EXPECT_EQ(isr, 1);
  EXPECT_EQ(set(kUnmask, 0, 1), 0);
  EXPECT_EQ(told(), 0u);
  const std::array<uint8_t, 2> disabled{0, 4}, enabled{0, 0};
  EXPECT_TRUE(pci.write(PciFunction::kConfigSpace, 4, disabled));
  pci.config_interrupt();
  EXPECT_EQ(told(), 0u) << "the guest has disabled it";
  EXPECT_TRUE(pci.write(PciFunction::kConfigSpace, 4, enabled));
  EXPECT_EQ(told(), 1u);
  EXPECT_EQ(set(VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER, 0, 0), 0);
  pci.config_interrupt();
  EXPECT_EQ(told(), 0u) << "taken away";
}

}  // namespace
}  // namespace bandsaw::vfio_user
