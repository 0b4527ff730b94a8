#include "backend/vgpud/api/api.h"

#include <event2/event.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "backend/control/paths.h"
#include "tests/unit/vgpud/fake_arbiter.h"

namespace bandsaw {
namespace {

using nlohmann::json;

constexpr uint64_t kGiB = uint64_t{1} << 30;

struct FreeBase {
  void operator()(event_base* base) const { event_base_free(base); }
};

// The API with virtual GPUs whose sessions do not run.
class ApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
    config_.run = folder_ + "/run";
    config_.state = folder_ + "/state";
    config_.devices.front().name = "soft";
    config_.devices.front().memory = 16 * kGiB;
    config_.session_program = "/bin/false";
    std::filesystem::create_directories(config_.run);
    base_.reset(event_base_new());
    open(&arbiter_);
  }
  void TearDown() override {
    api_.reset();
    session_manager_.reset();
    std::filesystem::remove_all(folder_);
  }
  // As vgpud starts, without sessions.
  void open(Arbiter* arbiter) {
    registry_.emplace(std::move(Registry::open(config_.state).value()));
    const std::shared_ptr<Arbiter> borrowed(std::shared_ptr<void>(), arbiter);
    gpus_.emplace(std::vector<Gpu>{{config_.devices.front(), borrowed}});
    session_manager_ = std::make_unique<SessionManager>(base_.get(), config_, *gpus_);
    api_ = std::make_unique<Api>(config_, &*registry_, session_manager_.get(), &*gpus_, [] {});
  }
  void add(const std::string& name, uint32_t compute, uint32_t copy = 1) {
    VgpuSpec spec;
    spec.name = name;
    spec.memory = kGiB;
    spec.compute = compute;
    spec.copy = copy;
    spec.index = registry_->free_index();
    ASSERT_TRUE(registry_->put(spec).ok());
    ASSERT_TRUE(arbiter_.add(name, engine_shares(spec)).ok());
  }
  json ask(const std::string& method, std::vector<std::string> path, const json& body = json()) {
    code_ = 0;
    std::string text;
    path.insert(path.begin(), "v1");
    const HttpRequest request{.method = method, .path = path, .query = "", .body = body.dump(), .peer = peer_};
    api_->handle(request, [&](const HttpAnswer& answer) {
      code_ = answer.code;
      text = answer.body;
    });
    for (int i = 0; code_ == 0 && i < 1000; ++i) event_base_loop(base_.get(), EVLOOP_ONCE);
    return json::parse(text, nullptr, false);
  }
  json set(const std::string& name, const json& body) { return ask("PATCH", {"vgpus", name}, body); }

  std::string folder_;
  Config config_;
  FakeArbiter arbiter_;
  std::unique_ptr<event_base, FreeBase> base_;
  std::optional<Registry> registry_;
  std::optional<Gpus> gpus_;
  std::unique_ptr<SessionManager> session_manager_;
  std::unique_ptr<Api> api_;
  ucred peer_{::getpid(), ::geteuid(), ::getegid()};
  int code_ = 0;
};

TEST_F(ApiTest, WhoMayLookMayNotChange) {
  add("a", 10);
  peer_.uid = 54321;
  EXPECT_TRUE(ask("GET", {"vgpus", "a"}).contains("compute"));
  EXPECT_EQ(code_, 200);
  for (const char* method : {"PATCH", "DELETE"}) {
    const json refused = ask(method, {"vgpus", "a"}, {{"compute", 40}});
    EXPECT_EQ(code_, 403) << method;
    EXPECT_NE(refused["hint"].get<std::string>().find("bandsaw-admin"), std::string::npos);
  }
  ask("POST", {"shutdown"});
  EXPECT_EQ(code_, 403);
  EXPECT_EQ(registry_->find("a")->compute, 10u);
}

TEST_F(ApiTest, AChangeReachesArbiterAndDisk) {
  add("a", 10);
  const json view = set("a", {{"compute", 40}, {"copy", 30}, {"cap", 80}, {"reserve", 20}, {"priority", -3}});
  EXPECT_EQ(code_, 200) << view;
  const EngineShares& shares = arbiter_.shares_["a"];
  EXPECT_EQ(shares[0], (sched::Share{.percent = 40, .reservation = 20, .cap = 80, .priority = -3}));
  EXPECT_EQ(shares[1], (sched::Share{.percent = 30, .reservation = 20, .cap = 80, .priority = -3}));
  EXPECT_EQ(shares[2], shares[1]);
  open(&arbiter_);
  EXPECT_EQ(registry_->find("a")->priority, -3);
  EXPECT_EQ(view["engines"]["compute"]["busy_ns"], 1500);
  EXPECT_EQ(view["engines"]["copy_out"]["waiting"], 3);
  EXPECT_EQ(view["keeps_engine"], true);
}

TEST_F(ApiTest, ArbitersHearWhatMayBeLent) {
  config_.swap_memory = 4 * kGiB;
  open(&arbiter_);
  for (const char* name : {"a", "b"}) add(name, 10);
  EXPECT_FALSE(arbiter_.memory_["a"]) << "all of its memory is on the device";
  set("a", {{"memory", 3 * kGiB / 2}, {"resident", kGiB / 2}});
  EXPECT_EQ(code_, 200);
  ASSERT_TRUE(arbiter_.memory_["a"]);
  EXPECT_EQ(arbiter_.memory_["a"]->reserved, kGiB / 2);
  EXPECT_EQ(arbiter_.memory_["a"]->lendable, 0u) << "nobody there may borrow it";
  set("b", {{"memory", 3 * kGiB / 2}, {"resident", kGiB / 2}});
  for (const char* name : {"a", "b"}) EXPECT_EQ(arbiter_.memory_[name]->lendable, kGiB / 16 * 7) << name;
  set("b", {{"memory", kGiB * 2}, {"resident", kGiB / 2}});
  EXPECT_EQ(code_, 200);
  EXPECT_EQ(arbiter_.memory_["a"]->lendable, kGiB / 16 * 7) << "1.4 GiB of the host's are left";
  set("b", {{"memory", kGiB * 3}, {"resident", kGiB / 2}});
  EXPECT_EQ(code_, 200);
  EXPECT_EQ(arbiter_.memory_["a"]->lendable, (kGiB / 2 - 2 * kSwapSlack) / 2);
  config_.swap_lend = false;
  open(&arbiter_);
  set("b", {{"compute", 11}});
  EXPECT_EQ(arbiter_.memory_["a"]->lendable, 0u);
}

TEST_F(ApiTest, WhatIsStillToBeGivenBackIsNotReserved) {
  config_.swap_memory = 4 * kGiB;
  open(&arbiter_);
  add("a", 10);
  arbiter_.debt = 1;
  const json refused = set("a", {{"memory", 3 * kGiB / 2}});
  EXPECT_EQ(code_, 409);
  EXPECT_NE(refused["error"].get<std::string>().find("still to be given back"), std::string::npos) << refused;
  set("a", {{"memory", kGiB / 2}});
  EXPECT_EQ(code_, 200);
  arbiter_.debt = 0;
  set("a", {{"memory", 3 * kGiB / 2}});
  EXPECT_EQ(code_, 200);
}

TEST_F(ApiTest, ALatencyBoundReachesArbiterAndDisk) {
  add("a", 10);
  json view = set("a", {{"latency_us", 260}});
  EXPECT_EQ(code_, 200) << view;
  EXPECT_EQ(arbiter_.latency_["a"], 260'000);
  EXPECT_EQ(view["latency"], (json{{"kept_by", "nothing"}, {"least_us", 250}, {"cost_us", 1234}}));
  gpus_->first().device.kind = "cuda";
  view = set("a", {{"latency_us", 261}});
  EXPECT_NE(view["notes"].at(0).get<std::string>().find("not kept"), std::string::npos) << view;
  arbiter_.latency_means_ = LatencyMeans::kTimeSlices;
  view = set("a", {{"latency_us", 262}});
  EXPECT_EQ(view["latency"]["kept_by"], "time-slices");
  EXPECT_FALSE(view.contains("notes")) << view;
  open(&arbiter_);
  EXPECT_EQ(registry_->find("a")->latency_us, 262u);
  EXPECT_FALSE(set("a", {{"latency_us", 0}}).contains("notes"));
  EXPECT_EQ(arbiter_.latency_["a"], 0);
}

TEST_F(ApiTest, ADeadlineForKernelsReachesArbiterAndDisk) {
  add("a", 10);
  EXPECT_EQ(set("a", {{"kernel_deadline_ms", 5000}})["kernel_deadline_ms"], 5000);
  EXPECT_EQ(arbiter_.deadline_["a"], 5'000'000'000);
  set("a", {{"compute", 11}});
  open(&arbiter_);
  EXPECT_EQ(registry_->find("a")->kernel_deadline_ms, 5000u);
  set("a", {{"kernel_deadline_ms", 0}});
  EXPECT_EQ(arbiter_.deadline_["a"], 0);
  set("a", {{"kernel_deadline_ms", 86'400'001}});
  EXPECT_EQ(code_, 400);
}

TEST_F(ApiTest, ABoundThatNoGpuKeepsIsRefusedWithTheLeast) {
  add("a", 10);
  set("a", {{"latency_us", 300}});
  json said = set("a", {{"latency_us", 249}});
  EXPECT_EQ(code_, 409);
  EXPECT_EQ(said["error"],
            "a latency bound of 249 us is below the least that a GPU can keep for a time-sliced virtual GPU: 250 us");
  EXPECT_EQ(arbiter_.latency_["a"], 300'000);
  set("a", {{"latency_us", 20}, {"sharing", "mps"}});
  EXPECT_EQ(code_, 200);
  said = set("a", {{"sharing", "time-sliced"}});  // with the bound that it has as an MPS one
  EXPECT_EQ(code_, 409) << said;
  EXPECT_EQ(arbiter_.sharing_["a"], Sharing::kMps);
}

TEST_F(ApiTest, ARefusedChangeChangesNothing) {
  add("a", 60);
  add("b", 30);
  for (const auto& [body, code] : std::vector<std::pair<json, int>>{{{{"compute", 41}}, 409},
                                                                    {{{"compute", 0}}, 400},
                                                                    {{{"compute", -1}}, 400},
                                                                    {{{"compute", 101}}, 400},
                                                                    {{{"cap", 20}, {"reserve", 21}}, 400},
                                                                    {{{"colour", 1}}, 400},
                                                                    {{{"latency_us", 19}}, 400},
                                                                    {{{"compute", 35}, {"policy", "best"}}, 400},
                                                                    {{{"compute", 35}, {"queues", 3}}, 400},
                                                                    {{{"memory", 17 * kGiB}}, 409}}) {
    const json said = set("b", body);
    EXPECT_EQ(code_, code) << body;
    EXPECT_TRUE(said.contains("error") && said.contains("hint")) << said;
    EXPECT_EQ(registry_->find("b")->compute, 30u);
    EXPECT_EQ(arbiter_.shares_["b"][0].percent, 30);
    EXPECT_EQ(arbiter_.options_.policy, "band+");
  }
  EXPECT_EQ(set("b", {{"compute", 41}})["error"],
            "compute shares would sum to 101 %: 41 % asked, 60 % given to others");
}

TEST_F(ApiTest, MemoryInUseIsNotTakenAway) {
  add("a", 10);
  std::filesystem::create_directories(vgpu_directory(config_.run, "a"));
  const JsonServer session(base_.get(),
                           std::move(listen_unix(session_socket(config_.run, "a"), SOCK_STREAM, 0600).value()),
                           [](const json& request) {
                             return json{{"ok", true}, {"memory_used", request["op"] == "status" ? 700 << 20 : 0}};
                           });
  session_manager_->add(*registry_->find("a"), nullptr);  // finds that session
  const std::string error = set("a", {{"memory", 512 << 20}, {"compute", 20}})["error"];
  EXPECT_EQ(code_, 409);
  EXPECT_NE(error.find("what 'a' uses now: 700.0 MiB (734003200 bytes)"), std::string::npos) << error;
  EXPECT_EQ(registry_->find("a")->memory, kGiB);
  EXPECT_EQ(arbiter_.shares_["a"][0].percent, 10);
  set("a", {{"memory", 700 << 20}, {"compute", 20}});
  EXPECT_EQ(code_, 200);
  EXPECT_EQ(registry_->find("a")->memory, uint64_t{700} << 20);
}

TEST_F(ApiTest, AnUnknownPolicyIsToldTheKnownOnes) {
  add("a", 60);
  const std::string error = ask("PATCH", {"scheduler"}, {{"policy", "best"}})["error"];
  EXPECT_EQ(error, "no policy 'best'; there are band+, band, credit, fifo");
  EXPECT_NE(ask("PATCH", {"scheduler"}, {{"queues", "x"}})["error"].get<std::string>().find("mrq"), std::string::npos);
}

TEST_F(ApiTest, APolicyIsTheWholeDevicesAndOutlivesARestart) {
  add("a", 60);
  EXPECT_EQ(ask("PATCH", {"scheduler"}, {{"policy", "fifo"}})["policy"], "fifo");
  EXPECT_EQ(ask("GET", {"status"})["scheduler"]["policy"], "fifo");
  ask("PATCH", {"scheduler"}, {{"queues", "sdq"}});
  EXPECT_EQ(code_, 200);
  EXPECT_EQ(arbiter_.options_.model, sched::QueueModel::kSdq);
  open(&arbiter_);
  ArbiterOptions options = effective_options(config_.scheduler, registry_->choice());
  EXPECT_EQ(choice_of(options), (PolicyChoice{"fifo", "sdq"}));
  // Who edits the configuration afterwards has spoken last.
  config_.scheduler.policy = "credit";
  options = effective_options(config_.scheduler, registry_->choice());
  EXPECT_EQ(choice_of(options), (PolicyChoice{"credit", "mrq"}));
}

TEST_F(ApiTest, SharingIsKeptAndSaysForWhom) {
  add("a", 60);
  const json view = set("a", {{"sharing", "mps"}});
  EXPECT_EQ(code_, 200);
  EXPECT_EQ(view["sharing"], "mps");
  ASSERT_EQ(view["notes"].size(), 2u) << view;
  EXPECT_NE(view["notes"][0].get<std::string>().find("from now on"), std::string::npos);
  EXPECT_NE(view["notes"][1].get<std::string>().find("mps only lets work"), std::string::npos);
  EXPECT_EQ(registry_->find("a")->sharing, Sharing::kMps);
  EXPECT_FALSE(set("a", {{"compute", 50}}).contains("notes"));
  EXPECT_EQ(set("a", {{"sharing", "mine"}})["error"], "no sharing 'mine'; there are time-sliced, mps");
  EXPECT_EQ(code_, 400);
}

TEST_F(ApiTest, ThePlanningModeIsTheWholeDevicesAndOutlivesARestart) {
  add("a", 60);
  EXPECT_EQ(ask("PATCH", {"scheduler"}, {{"planning", "kernelet"}})["planning"], "kernelet");
  EXPECT_EQ(ask("GET", {"status"})["scheduler"]["planning"], "kernelet");
  EXPECT_EQ(arbiter_.mode_, PlanningMode::kKernelet);
  EXPECT_TRUE(ask("GET", {"status"})["mps"]["daemon"].is_null());
  ask("PATCH", {"scheduler"}, {{"planning", "best"}});
  EXPECT_EQ(code_, 400);
  open(&arbiter_);
  EXPECT_EQ(effective_planning_mode(config_.planning_mode, registry_->planning_mode()), PlanningMode::kKernelet);
  ask("PATCH", {"scheduler"}, {{"planning", "persistent-greedy"}});
  EXPECT_EQ(code_, 200);
  EXPECT_NE(ask("PATCH", {"scheduler"}, {{"planning", "random"}})["error"].get<std::string>().find("the lab's"),
            std::string::npos);
  EXPECT_EQ(code_, 400);
  EXPECT_EQ(ask("GET", {"scheduler"})["planning"], "persistent-greedy");
}

TEST_F(ApiTest, SettingsOfTheDeviceAreNotThoseOfAVirtualGpu) {
  add("a", 60);
  for (const json& body : {json{{"policy", "fifo"}}, json{{"queues", "sdq"}}, json{{"planning", "kernelet"}}}) {
    json with_share = body;
    with_share["compute"] = 20;
    const json said = set("a", with_share);
    EXPECT_EQ(code_, 400) << body;
    EXPECT_NE(said["hint"].get<std::string>().find("vgpuctl scheduler set"), std::string::npos) << said;
    EXPECT_EQ(registry_->find("a")->compute, 60u);
  }
  EXPECT_EQ(arbiter_.options_.policy, "band+");
}

TEST_F(ApiTest, SchedulerTakesNothingElse) {
  for (const json& body : {json::object(), json::array(), json{{"depth", 3}}, json{{"policy", 3}}}) {
    ask("PATCH", {"scheduler"}, body);
    EXPECT_EQ(code_, 400) << body;
  }
  EXPECT_EQ(ask("GET", {"scheduler"})["depth"], 2);
  ask("DELETE", {"scheduler"});
  EXPECT_EQ(code_, 405);
}

TEST_F(ApiTest, WithPolicyNoneSharesAreKeptAndPoliciesRefused) {
  add("a", 60);
  arbiter_.options_.scheduled = false;
  EXPECT_TRUE(set("a", {{"compute", 50}})["engines"].is_null());
  EXPECT_EQ(code_, 200);
  ask("PATCH", {"scheduler"}, {{"policy", "fifo"}});
  EXPECT_EQ(code_, 409);
  EXPECT_EQ(ask("GET", {"scheduler"}), (json{{"policy", "none"}, {"planning", "mps"}}));
  ask("POST", {"trace", "start"}, {{"seconds", 1}});  // MPS virtual GPUs have grid slices also then
  EXPECT_EQ(code_, 200);
}

TEST_F(ApiTest, WhatIsNotCreatedHasNoShares) {
  const json said = ask("POST", {"vgpus"}, {{"name", "a"}, {"memory", kGiB}, {"compute", 50}});
  EXPECT_EQ(code_, 500) << said;  // its session ends at once
  EXPECT_TRUE(arbiter_.shares_.empty());
  EXPECT_FALSE(registry_->find("a"));
}

TEST_F(ApiTest, WhatIsDestroyedLeavesRoom) {
  add("a", 60);
  add("b", 40);
  ask("DELETE", {"vgpus", "a"});
  EXPECT_EQ(code_, 200);
  EXPECT_FALSE(arbiter_.shares_.contains("a"));
  set("b", {{"compute", 100}});
  EXPECT_EQ(code_, 200);
}

TEST_F(ApiTest, ATraceIsTakenOnceByWhoStartedIt) {
  arbiter_.records_ = {{"a", 3, sched::Engine::kCompute, 1000, 1500, 4000, 2400},
                       {"b", 0, sched::Engine::kCopyOut, 0, 2000, 2500, 500}};
  for (const json& body :
       {json(), json::object(), json{{"seconds", 0}}, json{{"seconds", 1e9}}, json{{"seconds", "1"}}}) {
    ask("POST", {"trace", "start"}, body);
    EXPECT_EQ(code_, 400) << body;
  }
  const json started = ask("POST", {"trace", "start"}, {{"seconds", 1.5}});
  EXPECT_TRUE(arbiter_.tracing_);
  ask("POST", {"trace", "start"}, {{"seconds", 1}});
  EXPECT_EQ(code_, 409);
  ask("POST", {"trace", "take"}, {{"trace", 99}});
  EXPECT_EQ(code_, 409);
  const json trace = ask("POST", {"trace", "take"}, started);
  EXPECT_EQ(trace["records"], json::parse("[[0,3,0,0,500,3000,2400],[1,0,2,1000,1000,1500,500]]"));
  EXPECT_EQ(trace["vgpus"], json::parse(R"(["a","b"])"));
  EXPECT_EQ(trace["lost"], 7);
  EXPECT_EQ(trace["base_ns"], 1000);
  ask("POST", {"trace", "take"}, started);
  EXPECT_EQ(code_, 409);
}

}  // namespace
}  // namespace bandsaw
