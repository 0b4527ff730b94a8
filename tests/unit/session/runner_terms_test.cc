#include "backend/session/runner_terms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace bandsaw {
namespace {

using nlohmann::json;

const json kRunning = {{"directory", "/run/mps.d/k/pipe"}, {"error", ""}, {"lost", ""}, {"gpu", "GPU-1"}};

bool has(const RunnerTerms& terms, const std::string& variable) {
  return std::find(terms.variables.begin(), terms.variables.end(), variable) != terms.variables.end();
}

SharingOrders orders(const json& request) {
  SharingOrders result;
  EXPECT_TRUE(read_orders(request, &result).ok());
  return result;
}

TEST(SharingOrders, KeepWhatIsNotSaid) {
  SharingOrders held = orders({{"sharing", "mps"}, {"planning", "opt"}, {"mps", kRunning}});
  ASSERT_TRUE(read_orders({{"op", "set"}, {"memory", 3}}, &held).ok());
  EXPECT_EQ(held.sharing, Sharing::kMps);
  EXPECT_EQ(held.mode, PlanningMode::kOpt);
  EXPECT_EQ(held.directory, "/run/mps.d/k/pipe");
}

TEST(SharingOrders, RefuseNonsenseWhole) {
  for (const json& bad : {json{{"sharing", "mine"}}, json{{"sharing", 3}}, json{{"planning", "best"}},
                          json{{"sharing", "mps"}, {"mps", 3}}, json{{"mps", {{"directory", 3}}}}}) {
    SharingOrders held;
    EXPECT_EQ(read_orders(bad, &held).code(), EINVAL) << bad;
    EXPECT_EQ(held.sharing, Sharing::kTimeSliced);
  }
}

TEST(RunnerTermsTest, ATimeSlicedOneFindsNoDaemon) {
  for (const auto& [device, request] :
       std::vector<std::pair<std::string, json>>{{"cuda:2", {{"sharing", "time-sliced"}, {"mps", kRunning}}},
                                                 {"soft", {{"sharing", "mps"}, {"mps", kRunning}}},
                                                 {"soft", {}}}) {
    const RunnerTerms terms = runner_terms(device, orders(request.is_null() ? json::object() : request));
    EXPECT_EQ(terms.refusal, 0);
    EXPECT_TRUE(terms.mps.empty() && terms.socket.empty());
    EXPECT_TRUE(has(terms, std::string("CUDA_MPS_PIPE_DIRECTORY=") + kNoMpsDirectory));
    EXPECT_TRUE(has(terms, "BANDSAW_DEVICE=" + device));
  }
}

TEST(RunnerTermsTest, AClientIsToldTheDaemonAndItsOneGpu) {
  const RunnerTerms terms =
      runner_terms("cuda:2", orders({{"sharing", "mps"}, {"planning", "kernelet"}, {"mps", kRunning}}));
  EXPECT_EQ(terms.refusal, 0);
  EXPECT_EQ(terms.socket, "/run/mps.d/k/pipe/control");
  for (const char* variable : {"CUDA_MPS_PIPE_DIRECTORY=/run/mps.d/k/pipe", "CUDA_VISIBLE_DEVICES=GPU-1",
                               "BANDSAW_DEVICE=cuda:0", "BANDSAW_PLANNING_MODE=kernelet", "BANDSAW_MPS=1"}) {
    EXPECT_TRUE(has(terms, variable)) << variable;
  }
}

TEST(RunnerTermsTest, SmsAreForClientsAlone) {
  SharingOrders held = orders({{"sharing", "mps"}, {"sms", "8:1+2"}, {"mps", kRunning}});
  EXPECT_TRUE(has(runner_terms("cuda:0", held), "BANDSAW_SMS=8:1+2"));
  EXPECT_EQ(read_orders({{"sms", "eight"}}, &held).code(), EINVAL);
  EXPECT_EQ(held.sms, (SmPart{8, 1, 2}));
  ASSERT_TRUE(read_orders({{"sms", ""}}, &held).ok());
  EXPECT_TRUE(has(runner_terms("cuda:0", held), "BANDSAW_SMS="));
  EXPECT_TRUE(has(runner_terms("cuda:0", orders({{"sms", "8:1+2"}})), "BANDSAW_SMS="));
}

TEST(RunnerTermsTest, WithoutADaemonNobodyIsStarted) {
  EXPECT_EQ(runner_terms("cuda:0", orders({{"sharing", "mps"}})).refusal, EAGAIN);
  const RunnerTerms terms =
      runner_terms("cuda:0", orders({{"sharing", "mps"}, {"mps", {{"error", "it is not installed"}}}}));
  EXPECT_EQ(terms.refusal, ENODEV);
  EXPECT_NE(terms.why.find("no MPS daemon: it is not installed"), std::string::npos);
}

TEST(RunnerTermsTest, VariablesReplaceThoseOfTheSameName) {
  EXPECT_EQ(with_variables({"A=1", "AB=2", "C=3"}, {"A=5", "D=6"}),
            (std::vector<std::string>{"AB=2", "C=3", "A=5", "D=6"}));
}

TEST(SharedFault, IsWhatTheGpuDidNotWhatTheGuestSaid) {
  for (const uint32_t fault : {700u, 702u, 710u, 715u, 719u, 214u}) EXPECT_TRUE(is_shared_fault(fault)) << fault;
  for (const uint32_t other : {0u, 1u, 2u, 46u, 709u, 720u, 999u}) EXPECT_FALSE(is_shared_fault(other)) << other;
}

}  // namespace
}  // namespace bandsaw
