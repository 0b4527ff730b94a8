#include "backend/vgpud/device.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace bandsaw {
namespace {

constexpr std::chrono::milliseconds kTimeout{5000};

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
    device_.kind = "cuda";
    device_.index = 2;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Status probe(const std::string& script, std::chrono::milliseconds timeout = kTimeout) {
    const std::string runner = folder_ + "/runner";
    std::ofstream(runner) << "#!/bin/sh\n" << script << "\n";
    ::chmod(runner.c_str(), 0755);
    return find_device(runner, timeout, &device_);
  }
  void expect_refusal(const Status& status, int code, const std::string& text) {
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  }

  std::string folder_;
  PhysicalDevice device_;
};

constexpr const char* kAnswer =
    R"(echo '{"name":"Test GPU","uuid":"GPU-1","memory":8589934592,"driver":"13000","sms":132,"sm_step":8}')";

TEST_F(DeviceTest, TheSoftwareDeviceHasHalfOfTheMachine) {
  PhysicalDevice soft;
  ASSERT_TRUE(find_device("/nonexistent", kTimeout, &soft).ok());
  EXPECT_EQ(soft.name, "soft");
  EXPECT_GT(soft.memory, kMemoryMin);
}

TEST_F(DeviceTest, AGpuSaysWhatItIs) {
  const Status status = probe(std::string("[ \"$*\" = '--probe cuda 2' ] || exit 5\n") + kAnswer);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(device_.name, "cuda:2");
  EXPECT_EQ(device_.model, "Test GPU");
  EXPECT_EQ(device_.uuid, "GPU-1");
  EXPECT_EQ(device_.driver, "13000");
  EXPECT_EQ(device_.memory, uint64_t{8} << 30);
  EXPECT_EQ(device_.sms, 132u);
  EXPECT_EQ(device_.sm_step, 8u);
}

TEST_F(DeviceTest, MemoryIsBoundedByWhatThereIs) {
  device_.memory = uint64_t{4} << 30;
  ASSERT_TRUE(probe(kAnswer).ok());
  EXPECT_EQ(device_.memory, uint64_t{4} << 30);
  device_.memory = uint64_t{9} << 30;
  expect_refusal(probe(kAnswer), EINVAL, "Test GPU has 8.0 GiB");
}

TEST_F(DeviceTest, AGpuIsAskedByItsUuidOnceThatIsKnown) {
  const std::string order = "[ \"$CUDA_DEVICE_ORDER\" = PCI_BUS_ID ] || exit 5\n";
  ASSERT_TRUE(probe(order + "[ -z \"$CUDA_VISIBLE_DEVICES\" ] || exit 6\n" + kAnswer).ok());
  EXPECT_EQ(device_.visible, "GPU-1");
  const Status again =
      probe("[ \"$CUDA_VISIBLE_DEVICES $*\" = 'GPU-1 --probe cuda 0' ] || exit 5\n" + std::string(kAnswer));
  EXPECT_TRUE(again.ok()) << again.message();
}

// A runner that knows GPU 0 alone.
constexpr const char* kOne =
    R"([ "$3" = 0 ] && echo '{"name":"Test GPU","uuid":"GPU-1","memory":8589934592}' || { echo no >&2; exit 1; })";

TEST_F(DeviceTest, OneThatIsNotThereIsLostAndTheOthersGoOn) {
  std::ofstream(folder_ + "/runner") << "#!/bin/sh\n" << kOne << "\n";
  ::chmod((folder_ + "/runner").c_str(), 0755);
  const auto find = [this](const std::vector<std::string>& names, std::vector<PhysicalDevice>* devices) {
    devices->clear();
    for (const std::string& name : names) devices->push_back(parse_device(name).value());
    return find_devices(folder_ + "/runner", 0, kTimeout, devices);
  };
  std::vector<PhysicalDevice> devices;
  ASSERT_TRUE(find({"cuda:1", "cuda:0", "soft:0", "soft:1"}, &devices).ok());
  EXPECT_NE(devices[0].lost.find("'cuda:1' cannot be used: no"), std::string::npos) << devices[0].lost;
  EXPECT_EQ(devices[1].lost, "");
  EXPECT_EQ(devices[2].name, "soft:0");
  PhysicalDevice alone;
  ASSERT_TRUE(find_device("", kTimeout, &alone).ok());
  EXPECT_EQ(devices[2].memory, alone.memory / 2);  // half of the machine's for both together
  EXPECT_EQ(devices[3].memory, alone.memory / 2);
  expect_refusal(find({"cuda:1"}, &devices), ENODEV, "no");
  expect_refusal(find({"cuda:0", "cuda:GPU-1"}, &devices), EINVAL, "are one GPU");
}

TEST_F(DeviceTest, WhatFailsIsNamedWithANextStep) {
  const Status none = probe("echo 'no libcuda.so.1 of an NVIDIA driver was found' >&2; exit 1");
  expect_refusal(none, ENODEV, "no libcuda.so.1 of an NVIDIA driver was found");
  expect_refusal(none, ENODEV, "nvidia-smi");
  expect_refusal(probe("exit 3"), ENODEV, "status");
  expect_refusal(probe("kill -9 $$"), ENODEV, "status");
  for (const char* text : {"", "{", "[]", "{}", R"({"memory":"8"})", R"({"memory":-1})"}) {
    expect_refusal(probe("echo '" + std::string(text) + "'"), ENODEV, "makes no sense");
  }
  expect_refusal(find_device(folder_ + "/none", kTimeout, &device_), ENODEV, "bandsaw-cuda");
}

TEST_F(DeviceTest, ASilentDriverIsGivenUp) {
  expect_refusal(probe("sleep 60", std::chrono::milliseconds(200)), ENODEV, "did not answer");
  expect_refusal(probe("exec >&- 2>&-; sleep 60", std::chrono::milliseconds(200)), ENODEV, "did not answer");
}

TEST_F(DeviceTest, MuchOutputIsNoHarm) {
  expect_refusal(probe("head -c 1000000 /dev/zero; exit 1"), ENODEV, "status");
  expect_refusal(probe("head -c 1000000 /dev/zero"), ENODEV, "makes no sense");
}

TEST_F(DeviceTest, OurOwnDriverIsTakenOutOfThePath) {
  for (const char* name : {"ours", "theirs", "none"}) std::filesystem::create_directory(folder_ + "/" + name);
  std::ofstream(folder_ + "/ours/libcuda.so.1") << "...BANDSAW_VGPU...";
  std::ofstream(folder_ + "/theirs/libcuda.so.1") << "...";
  const std::string rest = folder_ + "/none:" + folder_ + "/theirs";
  EXPECT_EQ(without_own_driver(folder_ + "/ours:" + rest), rest);
  EXPECT_EQ(without_own_driver(rest + "::" + folder_ + "/ours"), rest);
  EXPECT_EQ(without_own_driver(folder_ + "/ours"), "");
  EXPECT_EQ(without_own_driver(""), "");
}

}  // namespace
}  // namespace bandsaw
