#include "backend/session/status_query.h"
#include "backend/session/gpu_links.h"
#include "tests/unit/session/launchers.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace bandsaw {
namespace {

using std::chrono::seconds;

constexpr uint64_t kSecond = 1'000'000'000;

class StatusQueryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    page =
        static_cast<UsagePage*>(::mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, owner.fd(), 0));
    std::strcpy(info.name, "a device");
    info.attributes[75] = 9;   // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    info.attributes[16] = -1;  // no count of SMs
  }
  void TearDown() override { ::munmap(page, sizeof(UsagePage)); }

  template <typename T>
  int ask(uint32_t what, T* answer, uint32_t index = 0) {
    const vgpu_ctl_reply reply = query.answer({.header = {VGPU_CTL_QUERY, 0}, .what = what, .index = index}, seen);
    std::memcpy(answer, reply.message, sizeof *answer);
    return static_cast<int>(reply.status);
  }

  BasePtr base{event_base_new()};
  UsagePageOwner owner = std::move(UsagePageOwner::open(1000).value());
  UsagePage* page = nullptr;  // as runners see it
  vgpu_device_info info{};
  bool ready = true;
  StatusQuery query{
      base.get(), &owner, "host", make_vgpu_identity("host", "test", 3), [this] { return ready ? &info : nullptr; },
      nullptr};
  std::vector<ProcessSlot> seen;
};

TEST_F(StatusQueryTest, TheDeviceIsKnownOnceARunnerHasSaidIt) {
  vgpu_answer_device device;
  ready = false;
  EXPECT_EQ(ask(VGPU_QUERY_DEVICE, &device), EAGAIN);
  ready = true;
  ASSERT_EQ(ask(VGPU_QUERY_DEVICE, &device), 0);
  const VgpuIdentity identity = make_vgpu_identity("host", "test", 3);
  EXPECT_STREQ(device.name, "a device");
  EXPECT_EQ(std::memcmp(device.uuid, identity.uuid.data(), sizeof device.uuid), 0);
  EXPECT_EQ(device.pci_domain, identity.pci_domain);
  EXPECT_EQ(device.pci_bus, identity.pci_bus);
  EXPECT_EQ(device.capability_major, 9u);
  EXPECT_EQ(device.sms, 0u);
}

TEST_F(StatusQueryTest, LooksOnlyWhileThereIsSomethingToSee) {
  EXPECT_FALSE(query.awake());
  vgpu_answer_usage usage;
  ASSERT_EQ(ask(VGPU_QUERY_USAGE, &usage), 0);
  EXPECT_GT(usage.time_us, 0u);
  EXPECT_TRUE(query.awake());
}

TEST_F(StatusQueryTest, OnlyTheProcessesThatTheAskerMaySee) {
  const int own = owner.take_slot(), other = owner.take_slot();
  page->slots[own].memory_bytes = 30;
  page->slots[other].memory_bytes = 50;
  page->memory_used = 80;
  seen = {{.pid = 77, .slot = own}};
  vgpu_answer_process process;
  ASSERT_EQ(ask(VGPU_QUERY_PROCESS, &process, 0), 0);
  EXPECT_EQ(process.pid, 77u);
  EXPECT_EQ(process.memory_used, 30u);
  EXPECT_EQ(ask(VGPU_QUERY_PROCESS, &process, 1), ENOENT);
  EXPECT_EQ(ask(VGPU_QUERY_PROCESS, &process, ~0u), ENOENT);
  vgpu_answer_usage usage;
  ASSERT_EQ(ask(VGPU_QUERY_USAGE, &usage), 0);
  EXPECT_EQ(usage.memory_total, 1000u);
  EXPECT_EQ(usage.memory_used, 80u);  // the share is theirs together
  EXPECT_EQ(usage.processes, 1u);
}

TEST_F(StatusQueryTest, WhatARunnerWritesIsBounded) {
  page->memory_used = -5;
  vgpu_answer_usage usage;
  ASSERT_EQ(ask(VGPU_QUERY_USAGE, &usage), 0);
  EXPECT_EQ(usage.memory_used, 0u);
}

TEST_F(StatusQueryTest, UnknownQuestionsAndSensorsThatThereAreNot) {
  vgpu_answer_sensors sensors;
  EXPECT_EQ(ask(99, &sensors), EINVAL);
  ASSERT_EQ(ask(VGPU_QUERY_SENSORS, &sensors), 0);
  EXPECT_EQ(sensors.known, uint64_t{0xf} << VGPU_SENSOR_PCIE_GENERATION);  // a link, and nothing that is measured
  EXPECT_EQ(sensors.values[VGPU_SENSOR_PCIE_GENERATION_MOST], 4u);
  EXPECT_EQ(sensors.values[VGPU_SENSOR_PCIE_WIDTH], 16u);
}

TEST_F(StatusQueryTest, SoftwareDevicesOfOneHostReachEachOtherByNoLink) {
  vgpu_answer_links links;
  ready = false;  // no runner need have been ready
  ASSERT_EQ(ask(VGPU_QUERY_LINKS, &links), 0);
  EXPECT_NE(links.physical, 0u);
  EXPECT_EQ(links.active, 0u);
  EXPECT_EQ(links.physical, links_of_software("host").physical);
  EXPECT_NE(links.physical, links_of_software("other host").physical);
}

class GpuLinksTest : public ::testing::Test {
 protected:
  GpuLinksTest() {
    links.active = 0b1111;
    links.version = 6;
    links.speed_mbps = 26562;
  }
  static constexpr uint64_t kOwn = pci_address(0, 0x1a, 0), kOther = pci_address(0, 0x3b, 0);
  GpuLinks links;
  vgpu_answer_links answer() const { return links_of_gpu("host", kOwn, links); }
};

TEST_F(GpuLinksTest, LinksToSwitchesAndToAGpuThatIsReached) {
  links.to_switch = 0b0101;
  links.peers[0] = pci_address(1, 1, 1);
  links.peers[1] = links.remotes[1] = kOther;
  links.remotes[3] = pci_address(0, 0x77, 0);  // not reached
  const vgpu_answer_links said = answer();
  EXPECT_EQ(said.physical, physical_number("host", kOwn));
  EXPECT_EQ(said.active, 0b0111u);
  EXPECT_EQ(said.to_switch, 0b0101u);
  EXPECT_EQ(said.peers[1], physical_number("host", kOther));
  EXPECT_EQ(said.remotes[1], 2u);
  EXPECT_EQ(said.remotes[0], 0u);
  EXPECT_EQ(said.version, 6u);
  EXPECT_EQ(said.speed_mbps, 26562u);
}

TEST_F(GpuLinksTest, NoneWhereNoOtherGpuIsReached) {
  links.to_switch = 0b1111;
  EXPECT_EQ(answer().active, 0u);
  EXPECT_EQ(answer().version, 0u);
  EXPECT_NE(answer().physical, 0u);
}

TEST_F(GpuLinksTest, AMigInstanceReachesNothing) {
  links.divided = 1;
  links.to_switch = 0b1111;
  links.peers[0] = kOther;
  const vgpu_answer_links said = answer(), none{};
  EXPECT_EQ(std::memcmp(&said, &none, sizeof none), 0);
}

TEST_F(GpuLinksTest, NumbersTellGpusApartAndSayNothingOfThem) {
  EXPECT_NE(physical_number("host", kOwn), physical_number("host", kOther));
  EXPECT_NE(physical_number("host", kOwn), physical_number("other host", kOwn));
  EXPECT_NE(physical_number("", 0), 0u);
}

class UsageRatesTest : public StatusQueryTest {
 protected:
  void take(int second) { rates.take(owner, UsageRates::Time(seconds(1000 + second))); }
  UsageRates rates;
};

TEST_F(UsageRatesTest, PartsOfTheLastSecond) {
  const int first = owner.take_slot(), second = owner.take_slot();
  page->slots[first].compute_ns = 5 * kSecond;  // before anybody looked
  take(0);
  EXPECT_EQ(rates.total().compute_percent, 0u);
  page->slots[first].compute_ns += kSecond / 4;
  page->slots[second].compute_ns += kSecond / 2;
  page->slots[second].copy_ns += kSecond / 10;
  page->slots[second].bytes_in += 123;
  take(1);
  EXPECT_EQ(rates.of(first).compute_percent, 25u);
  EXPECT_EQ(rates.of(second).compute_percent, 50u);
  EXPECT_EQ(rates.total().compute_percent, 75u);
  EXPECT_EQ(rates.total().copy_percent, 10u);
  EXPECT_EQ(rates.total().bytes_in, 123u);
  take(2);
  EXPECT_EQ(rates.total().compute_percent, 0u);
}

TEST_F(UsageRatesTest, AKernelThatFillsTheSecondCountsBeforeItEnds) {
  const int slot = owner.take_slot();
  Gate& gate = page->grant_page.gates[static_cast<size_t>(slot)][0];
  gate.begun = 1;
  take(0);
  take(1);
  EXPECT_EQ(rates.of(slot).compute_percent, 100u);
  gate.ended = 1;
  page->slots[slot].compute_ns = 2 * kSecond;
  take(2);
  EXPECT_EQ(rates.of(slot).compute_percent, 100u);
  take(3);
  EXPECT_EQ(rates.of(slot).compute_percent, 0u);
}

TEST_F(UsageRatesTest, NonsenseStaysBelowAHundredPercent) {
  const int slot = owner.take_slot();
  take(0);
  page->slots[slot].compute_ns = ~uint64_t{0};
  page->slots[slot].copy_ns = ~uint64_t{0};
  take(1);
  EXPECT_EQ(rates.total().compute_percent, 100u);
  EXPECT_EQ(rates.total().copy_percent, 100u);
  page->slots[slot].compute_ns = 0;  // and back
  take(2);
  EXPECT_EQ(rates.total().compute_percent, 0u);
}

TEST_F(UsageRatesTest, AFreeSlotHasNone) {
  const int slot = owner.take_slot();
  take(0);
  page->slots[slot].compute_ns = kSecond;
  owner.give_back(slot);
  take(1);
  EXPECT_EQ(rates.of(slot).compute_percent, 0u);
}

class SensorReaderTest : public ::testing::Test {
 protected:
  // Asks until it is answered, for 5 s at most.
  const GpuReport* read(const char* bus_id) {
    const auto end = std::chrono::steady_clock::now() + seconds(5);
    const GpuReport* values = nullptr;
    while (!(values = reader.read(bus_id)) && std::chrono::steady_clock::now() < end) {
      event_base_loop(base.get(), EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
    return values;
  }
  std::unique_ptr<Launcher> launcher = plain_launcher();
  BasePtr base{event_base_new()};
  const std::vector<std::string> environment{};
  SensorReader reader{base.get(), launcher.get(), environment};
};

TEST_F(SensorReaderTest, ReadsWhatItsProcessSays) {
  EXPECT_EQ(reader.read("00000000:0a:00.0"), nullptr) << "nothing has been read yet";
  const GpuReport* const values = read("00000000:0a:00.0");
  ASSERT_NE(values, nullptr);
  EXPECT_EQ(values->sensors.known, 1u << VGPU_SENSOR_TEMPERATURE_C);
  EXPECT_EQ(values->sensors.values[VGPU_SENSOR_TEMPERATURE_C], 45u);
}

TEST_F(SensorReaderTest, AnotherGpuIsReadAnew) {
  ASSERT_NE(read("00000000:0a:00.0"), nullptr);
  EXPECT_EQ(reader.read("00000000:0b:00.0"), nullptr) << "nothing of the first one's is said of the second";
  EXPECT_NE(read("00000000:0b:00.0"), nullptr);
  const GpuReport* const values = read("no such GPU");
  ASSERT_NE(values, nullptr);
  EXPECT_EQ(values->sensors.known, 0u);
  EXPECT_NE(read("00000000:0a:00.0"), nullptr) << "the pause is that of the GPU without sensors";
}

TEST_F(SensorReaderTest, AGpuWithoutSensorsHasNone) {
  const GpuReport* const values = read("no such GPU");
  ASSERT_NE(values, nullptr);
  EXPECT_EQ(values->sensors.known, 0u);
}

}  // namespace
}  // namespace bandsaw
