#include "backend/session/runner_launch_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace bandsaw {
namespace {

using nlohmann::json;

const json kRunning = {{"directory", "/run/mps.d/k/pipe"}, {"error", ""}, {"lost", ""}, {"gpu", "GPU-1"}};

bool has(const RunnerLaunchConfig& launch_config, const std::string& variable) {
  return std::find(launch_config.variables.begin(), launch_config.variables.end(), variable) !=
         launch_config.variables.end();
}

SharingConfig sharing_config(const json& request) {
  SharingConfig result;
  EXPECT_TRUE(read_sharing_config(request, &result).ok());
  return result;
}

RunnerLaunchConfig on_device(const std::string& device, SharingConfig sharing_config) {
  sharing_config.device = device;
  return runner_launch_config(sharing_config);
}

TEST(SharingConfigTest, KeepWhatIsNotSaid) {
  SharingConfig held = sharing_config({{"sharing", "mps"}, {"planning", "opt"}, {"mps", kRunning}});
  ASSERT_TRUE(read_sharing_config({{"op", "set"}, {"memory", 3}}, &held).ok());
  EXPECT_EQ(held.sharing, Sharing::kMps);
  EXPECT_EQ(held.mode, PlanningMode::kOpt);
  EXPECT_EQ(held.directory, "/run/mps.d/k/pipe");
}

TEST(SharingConfigTest, RefuseNonsenseWhole) {
  for (const json& bad : {json{{"sharing", "mine"}}, json{{"sharing", 3}}, json{{"planning", "best"}},
                          json{{"sharing", "mps"}, {"mps", 3}}, json{{"mps", {{"directory", 3}}}}}) {
    SharingConfig held;
    EXPECT_EQ(read_sharing_config(bad, &held).code(), EINVAL) << bad;
    EXPECT_EQ(held.sharing, Sharing::kTimeSliced);
  }
}

TEST(RunnerLaunchConfigTest, ATimeSlicedOneFindsNoDaemon) {
  for (const auto& [device, request] :
       std::vector<std::pair<std::string, json>>{{"cuda:2", {{"sharing", "time-sliced"}, {"mps", kRunning}}},
                                                 {"soft", {{"sharing", "mps"}, {"mps", kRunning}}},
                                                 {"soft", {}}}) {
    const RunnerLaunchConfig launch_config =
        on_device(device, sharing_config(request.is_null() ? json::object() : request));
    EXPECT_EQ(launch_config.refusal, 0);
    EXPECT_TRUE(launch_config.mps.empty() && launch_config.socket.empty());
    EXPECT_TRUE(has(launch_config, std::string("CUDA_MPS_PIPE_DIRECTORY=") + kNoMpsDirectory));
    EXPECT_TRUE(has(launch_config, "BANDSAW_DEVICE=" + (device == "soft" ? device : "cuda:0")));
  }
}

TEST(RunnerLaunchConfigTest, AGpuIsTheOnlyOneInSightOfItsRunners) {
  const RunnerLaunchConfig on_gpu = on_device("cuda:2", sharing_config({{"gpu", "GPU-1"}}));
  EXPECT_TRUE(has(on_gpu, "CUDA_VISIBLE_DEVICES=GPU-1"));
  EXPECT_TRUE(has(on_gpu, "BANDSAW_DEVICE=cuda:0"));
  EXPECT_TRUE(has(on_device("soft:1", {}), "BANDSAW_DEVICE=soft:1"));
}

TEST(RunnerLaunchConfigTest, AnotherDeviceIsAnotherConfiguration) {
  SharingConfig held = sharing_config({{"device", "soft:0"}, {"soft_sms", 4u}});
  const RunnerLaunchConfig before = runner_launch_config(held);
  EXPECT_TRUE(has(before, "BANDSAW_DEVICE=soft:0") && has(before, "BANDSAW_SOFT_SMS=4"));
  const SharingConfig moved = sharing_config({{"device", "soft:1"}, {"soft_sms", 8u}});
  EXPECT_FALSE(same_device(held, moved));
  EXPECT_FALSE(before == runner_launch_config(moved)) << "warm runners would keep the old one";
  for (const json& bad : {json{{"soft_sms", -1}}, json{{"soft_sms", 1u << 20}}, json{{"device", 3}}}) {
    EXPECT_EQ(read_sharing_config(bad, &held).code(), EINVAL) << bad;
  }
  EXPECT_EQ(held.soft_sms, 4u);
}

TEST(RunnerLaunchConfigTest, ADeviceMayGetAnotherName) {
  EXPECT_TRUE(same_device(sharing_config({{"device", "soft"}}), sharing_config({{"device", "soft:0"}})));
  const SharingConfig gpu = sharing_config({{"device", "cuda:0"}, {"gpu", "GPU-1"}});
  EXPECT_TRUE(same_device(gpu, sharing_config({{"device", "cuda:1"}, {"gpu", "GPU-1"}})));
  EXPECT_FALSE(same_device(gpu, sharing_config({{"device", "cuda:0"}, {"gpu", "GPU-2"}})));
  EXPECT_TRUE(same_device(gpu, sharing_config({{"device", "cuda:0"}}))) << "of a GPU that was not found";
}

TEST(RunnerLaunchConfigTest, ALostDeviceRefusesWithTheReason) {
  const RunnerLaunchConfig lost = on_device("soft:1", sharing_config({{"device_error", "it is gone"}}));
  EXPECT_EQ(lost.refusal, ENODEV);
  EXPECT_EQ(lost.why, "device 'soft:1' is lost: it is gone");
  SharingConfig held = sharing_config({{"device_error", "it is gone"}});
  ASSERT_TRUE(read_sharing_config({{"device_error", ""}}, &held).ok());
  EXPECT_EQ(on_device("soft:1", held).refusal, 0);
}

TEST(RunnerLaunchConfigTest, AClientIsToldTheDaemonAndItsOneGpu) {
  const RunnerLaunchConfig launch_config =
      on_device("cuda:2", sharing_config({{"sharing", "mps"}, {"planning", "kernelet"}, {"mps", kRunning}}));
  EXPECT_EQ(launch_config.refusal, 0);
  EXPECT_EQ(launch_config.socket, "/run/mps.d/k/pipe/control");
  for (const char* variable : {"CUDA_MPS_PIPE_DIRECTORY=/run/mps.d/k/pipe", "CUDA_VISIBLE_DEVICES=GPU-1",
                               "BANDSAW_DEVICE=cuda:0", "BANDSAW_PLANNING_MODE=kernelet", "BANDSAW_MPS=1"}) {
    EXPECT_TRUE(has(launch_config, variable)) << variable;
  }
}

TEST(RunnerLaunchConfigTest, RunnersAreToldWhatGuardsTheirKernels) {
  SharingConfig held = sharing_config({{"sharing", "mps"}, {"mps", kRunning}});
  const RunnerLaunchConfig before = on_device("cuda:0", held);
  EXPECT_TRUE(has(before, "BANDSAW_GUARD="));
  ASSERT_TRUE(read_sharing_config({{"guard", "guard,clear-shared"}}, &held).ok());
  EXPECT_TRUE(has(on_device("cuda:0", held), "BANDSAW_GUARD=guard,clear-shared"));
  EXPECT_TRUE(has(on_device("soft", held), "BANDSAW_GUARD=guard,clear-shared"));
  EXPECT_FALSE(before == on_device("cuda:0", held)) << "warm runners would keep the old one";
  EXPECT_EQ(read_sharing_config({{"guard", true}}, &held).code(), EINVAL);
}

TEST(RunnerLaunchConfigTest, AClientIsBelowNormalUnlessItGoesFirst) {
  SharingConfig held = sharing_config({{"sharing", "mps"}, {"mps", kRunning}});
  EXPECT_TRUE(has(on_device("cuda:0", held), "CUDA_MPS_CLIENT_PRIORITY=1"));
  const RunnerLaunchConfig before = on_device("cuda:0", held);
  ASSERT_TRUE(read_sharing_config({{"mps_priority", "normal"}}, &held).ok());
  const RunnerLaunchConfig after = on_device("cuda:0", held);
  EXPECT_TRUE(has(after, "CUDA_MPS_CLIENT_PRIORITY=0"));
  EXPECT_FALSE(before == after) << "warm runners would keep the old one";
  EXPECT_EQ(read_sharing_config({{"mps_priority", "0"}}, &held).code(), EINVAL);
  EXPECT_EQ(read_sharing_config({{"mps_priority", 0}}, &held).code(), EINVAL);
  EXPECT_EQ(held.priority, MpsPriority::kNormal);
}

TEST(RunnerLaunchConfigTest, AClientLeavesRoomForWhoHasABound) {
  SharingConfig held = sharing_config({{"sharing", "mps"}, {"mps", kRunning}});
  const RunnerLaunchConfig before = on_device("cuda:0", held);
  ASSERT_TRUE(read_sharing_config({{"sm_thousandths", 985u}}, &held).ok());
  EXPECT_TRUE(has(on_device("cuda:0", held), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=98.5"));
  ASSERT_TRUE(read_sharing_config({{"sm_thousandths", 1000u}}, &held).ok());
  EXPECT_TRUE(on_device("cuda:0", held) == before);
  for (const auto& bad : {nlohmann::json(0u), nlohmann::json(1001u), nlohmann::json("985")})
    EXPECT_EQ(read_sharing_config({{"sm_thousandths", bad}}, &held).code(), EINVAL) << bad;
}

TEST(RunnerLaunchConfigTest, SmsAreForClientsAlone) {
  SharingConfig held = sharing_config({{"sharing", "mps"}, {"sms", "8:1+2"}, {"mps", kRunning}});
  EXPECT_TRUE(has(on_device("cuda:0", held), "BANDSAW_SMS=8:1+2"));
  EXPECT_EQ(read_sharing_config({{"sms", "eight"}}, &held).code(), EINVAL);
  EXPECT_EQ(held.sms, (SmPart{8, 1, 2}));
  ASSERT_TRUE(read_sharing_config({{"sms", ""}}, &held).ok());
  EXPECT_TRUE(has(on_device("cuda:0", held), "BANDSAW_SMS="));
  EXPECT_TRUE(has(on_device("cuda:0", sharing_config({{"sms", "8:1+2"}})), "BANDSAW_SMS="));
}

TEST(RunnerLaunchConfigTest, WithoutADaemonNobodyIsStarted) {
  EXPECT_EQ(on_device("cuda:0", sharing_config({{"sharing", "mps"}})).refusal, EAGAIN);
  const RunnerLaunchConfig launch_config =
      on_device("cuda:0", sharing_config({{"sharing", "mps"}, {"mps", {{"error", "it is not installed"}}}}));
  EXPECT_EQ(launch_config.refusal, ENODEV);
  EXPECT_NE(launch_config.why.find("no MPS daemon: it is not installed"), std::string::npos);
}

TEST(RunnerLaunchConfigTest, VariablesReplaceThoseOfTheSameName) {
  EXPECT_EQ(with_variables({"A=1", "AB=2", "C=3"}, {"A=5", "D=6"}),
            (std::vector<std::string>{"AB=2", "C=3", "A=5", "D=6"}));
}

TEST(SharedFault, IsWhatTheGpuDidNotWhatTheGuestSaid) {
  for (const uint32_t fault : {700u, 702u, 710u, 715u, 719u, 214u}) EXPECT_TRUE(is_shared_fault(fault)) << fault;
  for (const uint32_t other : {0u, 1u, 2u, 46u, 709u, 720u, 999u}) EXPECT_FALSE(is_shared_fault(other)) << other;
}

}  // namespace
}  // namespace bandsaw
