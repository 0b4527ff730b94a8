#include "backend/vgpud/registry.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "backend/vgpud/lock.h"

namespace bandsaw {
namespace {

VgpuSpec spec(const std::string& name, uint32_t index) {
  VgpuSpec result;
  result.name = name;
  result.memory = uint64_t{1} << 30;
  result.index = index;
  return result;
}

class RegistryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file() const { return folder_ + "/registry.json"; }
  Registry open() { return std::move(Registry::open(folder_).value()); }
  void write(const std::string& text) { std::ofstream(file()) << text; }
  std::string read() const {
    std::ostringstream text;
    text << std::ifstream(file()).rdbuf();
    return text.str();
  }
  std::string folder_;
};

SegmentSpec segment(const std::string& name, const std::string& vgpu, std::map<std::string, bool> grants = {}) {
  return {.id = 5, .name = name, .vgpu = vgpu, .bytes = kSegmentUnit, .grants = std::move(grants)};
}

TEST_F(RegistryTest, SegmentsAreTheSameAfterARestart) {
  {
    Registry registry = open();
    for (const char* name : {"a", "b"}) ASSERT_TRUE(registry.put(spec(name, name[0] - 'a')).ok());
    ASSERT_TRUE(registry.put_segment(segment("y", "a", {{"b", true}})).ok());
    ASSERT_TRUE(registry.put_segment(segment("x", "b")).ok());
    ASSERT_TRUE(registry.put_segment(segment("z", "b")).ok());
    ASSERT_TRUE(registry.remove_segment("z").ok());
  }
  Registry registry = open();
  ASSERT_EQ(registry.segments().size(), 2u);
  EXPECT_EQ(registry.segments()[0].name, "x");
  EXPECT_EQ(registry.find_segment("y")->grants, (std::map<std::string, bool>{{"b", true}}));
  EXPECT_EQ(registry.find_segment("y")->id, 5u);
  ASSERT_TRUE(registry.remove("b").ok());
  ASSERT_EQ(registry.segments().size(), 1u) << "with its owner";
  EXPECT_TRUE(registry.segments()[0].grants.empty()) << "and its rights";
}

TEST_F(RegistryTest, ASegmentThatIsNoneIsAnError) {
  open();
  const std::string good = R"({"id": "5", "name": "x", "vgpu": "a", "bytes": 2097152, "grants": []})";
  write(R"({"version": 1, "vgpus": [], "segments": [)" + good + "]}");
  EXPECT_TRUE(Registry::open(folder_).ok());
  for (const std::string& wrong :
       {good + "," + good, std::string("7"), std::string(R"({"id": "5", "name": "x"})"),
        std::string(R"({"id": "0", "name": "x", "vgpu": "a", "bytes": 1, "grants": []})"),
        std::string(R"({"id": "5", "name": "x", "vgpu": "a", "bytes": -1, "grants": []})"),
        std::string(
            R"({"id": "5", "name": "x", "vgpu": "a", "bytes": 1, "grants": [{"vgpu": "b", "access": "all"}]})")}) {
    write(R"({"version": 1, "vgpus": [], "segments": [)" + wrong + "]}");
    EXPECT_FALSE(Registry::open(folder_).ok()) << wrong;
  }
}

// Its own, and those of its device that it may use.
TEST_F(RegistryTest, ASessionIsToldOfItsSegments) {
  std::vector<VgpuSpec> all = {spec("a", 0), spec("b", 1), spec("c", 2)};
  all[2].device = "soft:1";
  const std::vector<SegmentSpec> segments = {segment("x", "a", {{"b", false}, {"c", true}, {"gone", true}}),
                                             segment("y", "c", {{"a", true}})};
  const nlohmann::json own = segments_for(all[0], segments, all), other = segments_for(all[1], segments, all);
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0]["access"], "write");
  ASSERT_EQ(own[0]["grants"].size(), 1u) << "of one device, and there";
  EXPECT_EQ(own[0]["grants"][0]["vgpu"], 1);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0]["access"], "read");
  EXPECT_EQ(other[0]["owner"], 0);
  EXPECT_FALSE(other[0].contains("grants"));
  EXPECT_EQ(segments_for(all[2], segments, all).size(), 1u) << "its own";
}

TEST_F(RegistryTest, IsTheSameAfterARestart) {
  {
    Registry registry = open();
    ASSERT_TRUE(registry.put(spec("b", 0)).ok());
    ASSERT_TRUE(registry.put(spec("a", 1)).ok());
    ASSERT_TRUE(registry.put(spec("c", 2)).ok());
    ASSERT_TRUE(registry.remove("b").ok());
    VgpuSpec changed = spec("c", 2);
    changed.compute = 40;
    ASSERT_TRUE(registry.put(changed).ok());
  }
  const Registry registry = open();
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(registry.find("c")->compute, 40u);
  EXPECT_FALSE(registry.find("b"));
  EXPECT_EQ(registry.free_index(), 0u);
  EXPECT_FALSE(std::filesystem::exists(file() + ".new"));
}

TEST_F(RegistryTest, AFullDiskChangesNothing) {
  Registry registry = open();
  ASSERT_TRUE(registry.put(spec("a", 0)).ok());
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{300, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Status add = registry.put(spec("b", 1));
  const Status remove = registry.put(spec(std::string(63, 'x'), 2));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(add.code(), EFBIG);
  EXPECT_EQ(remove.code(), EFBIG);
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"a"}));
  EXPECT_EQ(open().names(), (std::vector<std::string>{"a"}));
  EXPECT_FALSE(std::filesystem::exists(file() + ".new"));
  EXPECT_TRUE(registry.put(spec("b", 1)).ok());
}

TEST_F(RegistryTest, AFolderThatIsGoneChangesNothing) {
  Registry registry = open();
  ASSERT_TRUE(registry.put(spec("a", 0)).ok());
  std::filesystem::remove_all(folder_);
  EXPECT_EQ(registry.put(spec("b", 1)).code(), ENOENT);
  EXPECT_EQ(registry.remove("a").code(), ENOENT);
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"a"}));
}

TEST_F(RegistryTest, ALeftOverTemporaryIsNoHarm) {
  std::ofstream(file() + ".new") << "half of a regis";
  Registry registry = open();
  EXPECT_TRUE(registry.all().empty());
  EXPECT_TRUE(registry.put(spec("a", 0)).ok());
}

TEST_F(RegistryTest, AFileThatIsNotARegistryIsKeptAndRefused) {
  for (const char* text : {"", "{", "[]", "{}", R"({"version":1})", R"({"version":2,"vgpus":[]})",
                           R"({"version":1,"vgpus":[{"name":"../x"}]})", R"({"version":1,"vgpus":[{"name":3}]})",
                           R"({"version":1,"vgpus":[{"name":"a","index":0},{"name":"a","index":1}]})",
                           R"({"version":1,"vgpus":[{"name":"a","index":0},{"name":"b","index":0}]})"}) {
    write(text);
    EXPECT_FALSE(Registry::open(folder_).ok()) << text;
    EXPECT_TRUE(std::filesystem::exists(file()));
  }
}

TEST_F(RegistryTest, ReadsFilesOfEarlierVersionsAndMakesTheirSharesFit) {
  write(R"({"version":1,"vgpus":[{"name":"a","memory":1073741824,"compute":100,"copy":0,"index":0},
                                 {"name":"b","memory":1073741824,"compute":0,"copy":30,"index":1}]})");
  const Registry registry = open();
  EXPECT_EQ(registry.find("a")->compute, 99u);
  EXPECT_EQ(registry.find("a")->copy, 1u);
  EXPECT_EQ(registry.find("b")->compute, 1u);
  EXPECT_EQ(registry.find("b")->cap, 100u);
  EXPECT_EQ(registry.choice().chosen, PolicyChoice());
}

TEST_F(RegistryTest, KeepsThePolicyThatWasChosen) {
  {
    Registry registry = open();
    ASSERT_TRUE(registry.put_choice({{"fifo", "sdq"}, {"band+", "mrq"}}).ok());
    ASSERT_TRUE(registry.put(spec("a", 0)).ok());
  }
  const Registry registry = open();
  EXPECT_EQ(registry.choice().chosen, (PolicyChoice{"fifo", "sdq"}));
  EXPECT_EQ(registry.choice().configured, (PolicyChoice{"band+", "mrq"}));
  EXPECT_TRUE(registry.find("a"));
  for (const char* text : {R"({"version":1,"vgpus":[],"scheduler":3})", R"({"version":1,"vgpus":[],"scheduler":{}})",
                           R"({"version":1,"vgpus":[],"scheduler":{"policy":"best","queues":"mrq","configured":
                               {"policy":"band+","queues":"mrq"}}})"}) {
    write(text);
    EXPECT_FALSE(Registry::open(folder_).ok()) << text;
  }
}

TEST_F(RegistryTest, KeepsThePlanningMode) {
  {
    Registry registry = open();
    EXPECT_EQ(effective_planning_mode(PlanningMode::kMps, registry.planning_mode()), PlanningMode::kMps);
    ASSERT_TRUE(registry.put_planning_mode({PlanningMode::kOpt, PlanningMode::kMps}).ok());
    VgpuSpec mps = spec("a", 0);
    mps.sharing = Sharing::kMps;
    ASSERT_TRUE(registry.put(mps).ok());
    ASSERT_TRUE(registry.put_choice({{"fifo", "sdq"}, {"band+", "mrq"}}).ok());
  }
  const Registry registry = open();
  EXPECT_EQ(registry.find("a")->sharing, Sharing::kMps);
  EXPECT_EQ(effective_planning_mode(PlanningMode::kMps, registry.planning_mode()), PlanningMode::kOpt);
  // Who edits the configuration afterwards has spoken last.
  EXPECT_EQ(effective_planning_mode(PlanningMode::kRandom, registry.planning_mode()), PlanningMode::kRandom);
  for (const char* text : {R"({"version":1,"vgpus":[],"planning":3})", R"({"version":1,"vgpus":[],"corun":3})",
                           R"({"version":1,"vgpus":[],"planning":{"mode":"best","configured":"mps"}})",
                           R"({"version":1,"vgpus":[{"name":"a","index":0,"sharing":"mine"}]})"}) {
    write(text);
    EXPECT_FALSE(Registry::open(folder_).ok()) << text;
  }
}

TEST_F(RegistryTest, ReadsWordsOfEarlierVersionsAndWritesNone) {
  write(R"({"version":1,"vgpus":[{"name":"a","index":0,"sharing":"corun"},{"name":"b","index":1,"sharing":"isolated"}],
            "corun":{"mode":"opt","configured":"mps"}})");
  Registry registry = open();
  EXPECT_EQ(registry.find("a")->sharing, Sharing::kMps);
  EXPECT_EQ(registry.find("b")->sharing, Sharing::kTimeSliced);
  EXPECT_EQ(registry.planning_mode().chosen, PlanningMode::kOpt);
  ASSERT_TRUE(registry.put(spec("c", 2)).ok());
  const std::string written = read();
  EXPECT_EQ(written.find("corun"), std::string::npos) << written;
  EXPECT_EQ(written.find("isolated"), std::string::npos) << written;
  EXPECT_EQ(open().planning_mode().chosen, PlanningMode::kOpt);
}

TEST_F(RegistryTest, OnlyOneHoldsTheLock) {
  auto first = take_lock(folder_ + "/pid");
  ASSERT_TRUE(first.ok());
  const auto second = take_lock(folder_ + "/pid");
  EXPECT_EQ(second.status().code(), EEXIST);
  EXPECT_NE(second.status().message().find(std::to_string(::getpid())), std::string::npos);
  first.value().reset();
  EXPECT_TRUE(take_lock(folder_ + "/pid").ok());
}

PhysicalDevice named(const std::string& name, const std::string& uuid = "") {
  PhysicalDevice result;
  result.name = name;
  result.uuid = uuid;
  return result;
}

TEST_F(RegistryTest, OneWithoutADeviceIsOnTheFirst) {
  write(R"({"version":1,"vgpus":[{"name":"a","index":0,"memory":1073741824},
        {"name":"b","index":1,"memory":1073741824,"device":"soft"},
        {"name":"c","index":2,"memory":1073741824,"device":"cuda:1"}]})");
  Registry registry = open();
  registry.settle(std::vector{named("cuda:0", "X"), named("soft:0")});
  EXPECT_EQ(registry.find("a")->device, "cuda:0");
  EXPECT_EQ(registry.find("a")->device_uuid, "X");
  EXPECT_EQ(registry.find("b")->device, "soft:0");  // which was the only one
  EXPECT_EQ(registry.find("c")->device, "cuda:1");  // and is not here
  registry.settle(std::vector{named("soft")});
  EXPECT_EQ(registry.find("b")->device, "soft");
}

TEST_F(RegistryTest, AVirtualGpuStaysOnItsGpuWhateverTheNumbers) {
  Registry registry = open();
  const auto put = [&registry](const std::string& name, uint32_t index, const PhysicalDevice& on) {
    VgpuSpec made = spec(name, index);
    made.device = on.name;
    made.device_uuid = on.uuid;
    ASSERT_TRUE(registry.put(made).ok());
  };
  put("a", 0, named("cuda:0", "X"));
  put("b", 1, named("cuda:1", "Y"));
  registry = open();
  registry.settle(std::vector{named("cuda:0", "Y"), named("cuda:1", "X")});
  EXPECT_EQ(registry.find("a")->device, "cuda:1");
  EXPECT_EQ(registry.find("b")->device, "cuda:0");
  // X is taken out. Y has got its number, and is not for who was on X.
  registry = open();
  registry.settle(std::vector{named("cuda:0", "Y")});
  EXPECT_EQ(registry.find("a")->device, "cuda:X");
  EXPECT_EQ(registry.find("b")->device, "cuda:0");
  // Another card in its place takes its virtual GPUs over.
  registry = open();
  registry.settle(std::vector{named("cuda:0", "Z"), named("cuda:1", "Y")});
  EXPECT_EQ(registry.find("a")->device_uuid, "Z");
  EXPECT_EQ(registry.find("a")->device, "cuda:0");
  // One that does not answer is known by its name.
  registry = open();
  registry.settle(std::vector{named("cuda:0"), named("cuda:1", "Y")});
  EXPECT_EQ(registry.find("a")->device, "cuda:0");
  EXPECT_EQ(registry.find("a")->device_uuid, "X");
}

}  // namespace
}  // namespace bandsaw
