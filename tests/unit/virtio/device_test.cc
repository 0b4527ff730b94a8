// The device through its PCI registers, driven by a fake driver.
#include "hypervisor/virtio/device.h"

#include <gtest/gtest.h>
#include <linux/pci_regs.h>
#include <linux/virtio_config.h>
#include <sys/eventfd.h>

#include "hypervisor/virtio/core.h"
#include "tests/unit/virtio/fake_guest.h"

namespace bandsaw::virtio {
namespace {

constexpr uint64_t kRam = 0x100000, kRamBytes = 4 << 20, kBuffers = kRam + 0x40000, kReply = kRam + 0x10000;
constexpr uint64_t kFeatures =
    1ull << VIRTIO_F_VERSION_1 | 1ull << VIRTIO_RING_F_EVENT_IDX | 1ull << VIRTIO_RING_F_INDIRECT_DESC;

class DeviceTest : public testing::Test {
 protected:
  DeviceTest() : ram_(kRam, kRamBytes), device_({.name = "web0", .max_processes = 7}, sink_), driver_(pci(), ram_) {
    pci().core().connected();
    EXPECT_TRUE(pci().core().add_ram(kRam, kRamBytes, ram_.dup_fd(), 0, true).ok());
    for (uint32_t i = 0; i < PciFunction::kVectors; ++i) {
      vectors_[i] = UniqueFd(eventfd(0, EFD_NONBLOCK));
      pci().set_vector(i, UniqueFd(dup(vectors_[i].get())));
    }
  }
  PciFunction& pci() { return device_.pci(); }
  uint64_t interrupts(int vector) {
    uint64_t count = 0;
    return read(vectors_[vector].get(), &count, sizeof(count)) == sizeof(count) ? count : 0;
  }
  uint32_t config(uint64_t offset, size_t width) {
    uint32_t value = 0;
    EXPECT_TRUE(pci().read(PciFunction::kConfigSpace, offset, {reinterpret_cast<uint8_t*>(&value), width}));
    return value;
  }
  void set_config(uint64_t offset, size_t width, uint32_t value) {
    EXPECT_TRUE(pci().write(PciFunction::kConfigSpace, offset, {reinterpret_cast<uint8_t*>(&value), width}));
  }
  unsigned capability(uint8_t id, uint8_t virtio_type) {
    for (unsigned at = config(PCI_CAPABILITY_LIST, 1); at; at = config(at + 1, 1))
      if (config(at, 1) == id && (id != PCI_CAP_ID_VNDR || config(at + 3, 1) == virtio_type)) return at;
    return 0;
  }

  FakeSink sink_;
  FakeRam ram_;
  Device device_;
  FakeDriver driver_;
  UniqueFd vectors_[PciFunction::kVectors];
};

TEST_F(DeviceTest, ShowsItsIdentityAndCapabilities) {
  EXPECT_EQ(config(PCI_VENDOR_ID, 4), 0x107f1af4u);
  EXPECT_EQ(config(PCI_REVISION_ID, 1), 1u);
  EXPECT_EQ(config(PCI_SUBSYSTEM_VENDOR_ID, 4), 0x107f1af4u);
  EXPECT_EQ(config(PCI_STATUS, 2), uint32_t{PCI_STATUS_CAP_LIST});
  for (uint8_t type : {VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_NOTIFY_CFG, VIRTIO_PCI_CAP_ISR_CFG,
                       VIRTIO_PCI_CAP_DEVICE_CFG, VIRTIO_PCI_CAP_PCI_CFG})
    EXPECT_NE(capability(PCI_CAP_ID_VNDR, type), 0u);
  const unsigned msix = capability(PCI_CAP_ID_MSIX, 0);
  ASSERT_NE(msix, 0u);
  EXPECT_EQ(config(msix + PCI_MSIX_FLAGS, 2), PciFunction::kVectors - 1);
  set_config(PCI_BASE_ADDRESS_0, 4, 0xffffffff);
  EXPECT_EQ(config(PCI_BASE_ADDRESS_0, 4), 0xffffc000u);  // 16 KiB
  set_config(PCI_VENDOR_ID, 4, 0);
  EXPECT_EQ(config(PCI_VENDOR_ID, 4), 0x107f1af4u);  // read-only
}

TEST_F(DeviceTest, ShowsItsConfiguration) {
  vgpu_virtio_config shown{};
  for (size_t i = 0; i < sizeof(shown); ++i)
    ASSERT_TRUE(pci().read(PciFunction::kBar0, 0x2000 + i, {reinterpret_cast<uint8_t*>(&shown) + i, 1}));
  EXPECT_EQ(shown.abi_version, uint32_t{VGPU_ABI_VERSION});
  EXPECT_EQ(shown.max_processes, 7u);
  EXPECT_STREQ(reinterpret_cast<const char*>(shown.name), "web0");
}

TEST_F(DeviceTest, ReachesRegistersThroughThePciWindow) {
  const unsigned window = capability(PCI_CAP_ID_VNDR, VIRTIO_PCI_CAP_PCI_CFG);
  set_config(window + offsetof(virtio_pci_cap, bar), 1, 0);
  set_config(window + offsetof(virtio_pci_cap, offset), 4, offsetof(virtio_pci_common_cfg, num_queues));
  set_config(window + offsetof(virtio_pci_cap, length), 4, 2);
  EXPECT_EQ(config(window + offsetof(virtio_pci_cfg_cap, pci_cfg_data), 2), uint32_t{VGPU_QUEUE_COUNT});
  set_config(window + offsetof(virtio_pci_cap, offset), 4, offsetof(virtio_pci_common_cfg, device_status));
  set_config(window + offsetof(virtio_pci_cap, length), 4, 1);
  set_config(window + offsetof(virtio_pci_cfg_cap, pci_cfg_data), 1, 1);
  EXPECT_EQ(driver_.status(), 1);
  for (uint32_t length : {0u, 3u, 8u, 0xffffffffu}) {  // nonsense does nothing
    set_config(window + offsetof(virtio_pci_cap, length), 4, length);
    set_config(window + offsetof(virtio_pci_cap, offset), 4, 0xfffffff0u);
    set_config(window + offsetof(virtio_pci_cap, bar), 1, 0xff);
    set_config(window + offsetof(virtio_pci_cfg_cap, pci_cfg_data), 4, 1);
    config(window + offsetof(virtio_pci_cfg_cap, pci_cfg_data), 4);
  }
}

TEST_F(DeviceTest, NegotiatesOnlyWhatItOffers) {
  EXPECT_EQ(driver_.features(), kFeatures);
  driver_.set_status(3);
  driver_.accept(kFeatures | 1ull << VIRTIO_F_ACCESS_PLATFORM);
  driver_.set_status(11);
  EXPECT_FALSE(driver_.status() & VIRTIO_CONFIG_S_FEATURES_OK);
  driver_.accept(1ull << VIRTIO_RING_F_EVENT_IDX);  // no VERSION_1
  driver_.set_status(11);
  EXPECT_FALSE(driver_.status() & VIRTIO_CONFIG_S_FEATURES_OK);
  driver_.set_status(15);  // DRIVER_OK without FEATURES_OK
  EXPECT_EQ(sink_.ready, 0);
  driver_.start(kFeatures);
  EXPECT_EQ(driver_.status(), 15);
  EXPECT_EQ(sink_.ready, 1);
}

TEST_F(DeviceTest, CarriesARequestAndItsLateAnswer) {
  driver_.start(kFeatures);
  std::memcpy(ram_.at<char>(kBuffers), "request!", 8);
  driver_.offer_request(kBuffers, 8, kReply, sizeof(vgpu_ctl_reply));
  driver_.notify(0);
  ASSERT_EQ(sink_.requests.size(), 1u);
  EXPECT_EQ(std::string(sink_.requests[0].bytes.begin(), sink_.requests[0].bytes.end()), "request!");
  EXPECT_EQ(driver_.used_index(0), 0);
  vgpu_ctl_reply reply{};
  reply.value = 42;
  sink_.requests[0].reply(reply);
  EXPECT_EQ(driver_.used_index(0), 1);
  EXPECT_EQ(ram_.at<vgpu_ctl_reply>(kReply)->value, 42u);
  EXPECT_EQ(interrupts(1), 1u);
  sink_.requests[0].reply(reply);  // a second answer goes nowhere
  EXPECT_EQ(driver_.used_index(0), 1);
}

TEST_F(DeviceTest, RefusesOversizedRequestsButGoesOn) {
  driver_.start(kFeatures);
  driver_.offer_request(kBuffers, static_cast<uint32_t>(kRequestMaxBytes + 1), kReply, sizeof(vgpu_ctl_reply));
  driver_.notify(0);
  EXPECT_TRUE(sink_.requests.empty());
  EXPECT_EQ(ram_.at<vgpu_ctl_reply>(kReply)->status, uint32_t{EMSGSIZE});
  EXPECT_EQ(driver_.status(), 15);
}

TEST_F(DeviceTest, NeedsResetAfterABrokenChain) {
  driver_.start(kFeatures);
  driver_.offer_request(kRam - 4096, 8, kReply, sizeof(vgpu_ctl_reply));
  driver_.notify(0);
  EXPECT_TRUE(driver_.status() & VIRTIO_CONFIG_S_NEEDS_RESET);
  EXPECT_EQ(interrupts(0), 1u);  // configuration change
  driver_.notify(0);
  EXPECT_TRUE(sink_.requests.empty());
  driver_.start(kFeatures);
  EXPECT_EQ(driver_.status(), 15);
  EXPECT_EQ(sink_.resets, 1);
}

TEST_F(DeviceTest, NeedsResetWhenThereIsNoRoomForTheReply) {
  driver_.start(kFeatures);
  driver_.offer_request(kBuffers, 8, kReply, sizeof(vgpu_ctl_reply) - 1);
  driver_.notify(0);
  EXPECT_TRUE(driver_.status() & VIRTIO_CONFIG_S_NEEDS_RESET);
}

TEST_F(DeviceTest, FinishesAResetWhenTheSessionHas) {
  driver_.start(kFeatures);
  driver_.offer_request(kBuffers, 8, kReply, sizeof(vgpu_ctl_reply));
  driver_.notify(0);
  sink_.hold_resets = true;
  driver_.set_status(0);
  EXPECT_NE(driver_.status(), 0);
  driver_.set_status(1);  // too early: ignored
  bool reset_by_hypervisor = false;
  pci().reset([&] { reset_by_hypervisor = true; });
  EXPECT_EQ(sink_.resets, 1);
  sink_.requests[0].reply({});  // of before the reset
  EXPECT_EQ(driver_.used_index(0), 0);
  sink_.pending[0]();
  EXPECT_EQ(driver_.status(), 0);
  EXPECT_TRUE(reset_by_hypervisor);
  sink_.hold_resets = false;
  driver_.start(kFeatures);
  EXPECT_EQ(driver_.status(), 15);
}

TEST_F(DeviceTest, PostsEventsAndMergesEqualOnesThatWait) {
  driver_.start(kFeatures);
  device_.post_event(VGPU_EVENT_WAKE, 1);
  device_.post_event(VGPU_EVENT_WAKE, 1);
  device_.post_event(VGPU_EVENT_PROCESS_LOST, 1);
  device_.post_event(VGPU_EVENT_WAKE, 2);
  for (uint16_t i = 0; i < 4; ++i) {
    driver_.descriptors(1)[i] = {kBuffers + 64u * i, sizeof(vgpu_event), VRING_DESC_F_WRITE, 0};
    driver_.offer(1, i);
  }
  driver_.notify(1);
  EXPECT_EQ(driver_.used_index(1), 3);
  EXPECT_EQ(interrupts(2), 1u);
  EXPECT_EQ(ram_.at<vgpu_event>(kBuffers)->process, 1u);
  EXPECT_EQ(ram_.at<vgpu_event>(kBuffers + 64)->type, uint32_t{VGPU_EVENT_PROCESS_LOST});
  EXPECT_EQ(ram_.at<vgpu_event>(kBuffers + 128)->process, 2u);
  device_.post_event(VGPU_EVENT_WAKE, 3);  // a buffer is there: at once
  EXPECT_EQ(driver_.used_index(1), 4);
}

TEST_F(DeviceTest, KeepsAnInterruptForAVectorThatComesLater) {
  driver_.start(kFeatures);
  pci().set_vector(1, UniqueFd());
  driver_.set_used_event(0, 0);
  sink_.answer_at_once = true;
  driver_.offer_request(kBuffers, 8, kReply, sizeof(vgpu_ctl_reply));
  driver_.notify(0);
  uint8_t pending = 0;
  ASSERT_TRUE(pci().read(PciFunction::kBar1, 2048, {&pending, 1}));
  EXPECT_EQ(pending, 2);
  pci().set_vector(1, UniqueFd(dup(vectors_[1].get())));
  EXPECT_EQ(interrupts(1), 1u);
}

TEST_F(DeviceTest, FollowsRamAtRunTime) {
  ASSERT_EQ(sink_.added.size(), 1u);
  EXPECT_EQ(sink_.added[0].gpa, kRam);
  driver_.start(kFeatures);
  sink_.hold_removals = true;
  int code = -1;
  pci().core().remove_ram(kRam, kRamBytes, [&](Status status) { code = status.code(); });
  EXPECT_EQ(sink_.removed, std::vector<uint32_t>{sink_.added[0].id});
  EXPECT_EQ(code, -1);  // not before the session has let go
  sink_.pending[0]();
  EXPECT_EQ(code, 0);
  driver_.offer_request(kBuffers, 8, kReply, sizeof(vgpu_ctl_reply));
  driver_.notify(0);  // the rings are gone
  EXPECT_TRUE(driver_.status() & VIRTIO_CONFIG_S_NEEDS_RESET);
  pci().core().remove_ram(kRam, kRamBytes, [&](Status status) { code = status.code(); });
  EXPECT_EQ(code, ENOENT);
}

TEST_F(DeviceTest, StartsAnewForTheNextHypervisor) {
  driver_.start(kFeatures);
  driver_.offer_request(kBuffers, 8, kReply, sizeof(vgpu_ctl_reply));
  driver_.notify(0);
  pci().hypervisor_gone();
  EXPECT_EQ(sink_.disconnects, 1);
  EXPECT_FALSE(device_.connected());
  EXPECT_FALSE(device_.driver_ready());
  sink_.requests[0].reply({});  // the RAM is gone
  EXPECT_EQ(config(PCI_COMMAND, 2), 0u);
  pci().core().connected();
  EXPECT_TRUE(pci().core().add_ram(kRam, kRamBytes, ram_.dup_fd(), 0, true).ok());
  std::memset(ram_.at<uint8_t>(kRam), 0, 0x10000);
  driver_.start(kFeatures);
  EXPECT_EQ(sink_.ready, 2);
}

TEST_F(DeviceTest, IgnoresAccessesThatFitNoRegister) {
  uint8_t bytes[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  EXPECT_FALSE(pci().read(PciFunction::kBar0, 16384, {bytes, 1}));
  EXPECT_FALSE(pci().read(PciFunction::kBar0, 16383, {bytes, 2}));
  EXPECT_FALSE(pci().read(PciFunction::kBar0, UINT64_MAX, {bytes, 2}));
  EXPECT_FALSE(pci().read(PciFunction::kBar0, 0, {bytes, 3}));
  EXPECT_FALSE(pci().read(PciFunction::kConfigSpace, 255, {bytes, 2}));
  EXPECT_FALSE(pci().read(3, 0, {bytes, 1}));
  EXPECT_FALSE(pci().write(PciFunction::kBar1, 4095, {bytes, 2}));
  EXPECT_FALSE(pci().write(PciFunction::kBar0, 0, {bytes, 0}));
  for (uint64_t offset = 0; offset < 64; ++offset)
    for (size_t width : {1, 2, 4, 8}) EXPECT_TRUE(pci().write(PciFunction::kBar0, offset, {bytes, width}));
  driver_.set_common<uint16_t>(offsetof(virtio_pci_common_cfg, queue_select), 5);
  driver_.set_common<uint16_t>(offsetof(virtio_pci_common_cfg, queue_enable), 1);
  EXPECT_EQ(driver_.common<uint16_t>(offsetof(virtio_pci_common_cfg, queue_size)), 0);
  driver_.start(kFeatures);
  EXPECT_EQ(driver_.status(), 15);
}

TEST_F(DeviceTest, AnswersAfterItsEndDoNothing) {
  DeviceSink::Reply late;
  {
    FakeSink sink;
    Device device({}, sink);
    FakeDriver driver(device.pci(), ram_);
    EXPECT_TRUE(device.pci().core().add_ram(kRam, kRamBytes, ram_.dup_fd(), 0, true).ok());
    driver.start(kFeatures);
    driver.offer_request(kBuffers, 8, kReply, sizeof(vgpu_ctl_reply));
    driver.notify(0);
    ASSERT_EQ(sink.requests.size(), 1u);
    late = sink.requests[0].reply;
  }
  late({});
}

}  // namespace
}  // namespace bandsaw::virtio
