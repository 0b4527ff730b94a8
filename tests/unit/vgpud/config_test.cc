#include "backend/vgpud/config.h"

#include <gtest/gtest.h>

#include <sstream>

#include <tuple>
#include <vector>

#include <cstdlib>

#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/arbiter/plan_options.h"

namespace bandsaw {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("BANDSAW_RUN");
    ::unsetenv("BANDSAW_STATE");
  }
};

TEST_F(ConfigTest, HasValuesOfItsOwn) {
  const auto config = parse_config("", "x");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().run, "/run/bandsaw");
  EXPECT_EQ(config.value().devices.front().kind, "soft");
}

TEST_F(ConfigTest, ReadsTheFileAndTheEnvironmentWins) {
  ::setenv("BANDSAW_RUN", "/tmp/r", 1);
  const auto config = parse_config(R"(
run = "/a"
state = "/b"
[device]
memory = "4G"
[session]
warm_runners = 3
first_uid = 0
[direct]
mode = "0600"
)",
                                   "x");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().run, "/tmp/r");
  EXPECT_EQ(config.value().state, "/b");
  EXPECT_EQ(config.value().devices.front().memory, uint64_t{4} << 30);
  EXPECT_EQ(config.value().warm_runners, 3u);
  EXPECT_EQ(config.value().first_uid, 0u);
  EXPECT_EQ(config.value().direct_mode, "0600");
}

TEST_F(ConfigTest, ChoosesAGpu) {
  const auto config = parse_config("[device]\nname = \"cuda\"\nindex = 3\nmemory = \"auto\"", "x");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().devices.front().kind, "cuda");
  EXPECT_EQ(config.value().devices.front().index, 3u);
  EXPECT_EQ(config.value().devices.front().memory, 0u);
}

TEST_F(ConfigTest, HasSeveralDevices) {
  const auto config = parse_config(R"(
devices = ["cuda:0", "cuda:MIG-0a1b2c3d-0a1b", {name = "soft:1", memory = "4G", sms = 16}, "soft"]
)",
                                   "x");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto& devices = config.value().devices;
  ASSERT_EQ(devices.size(), 4u);
  EXPECT_EQ(devices[0].name, "cuda:0");
  EXPECT_EQ(devices[0].visible, "");
  EXPECT_EQ(devices[1].name, "cuda:MIG-0a1b2c3d-0a1b");
  EXPECT_EQ(devices[1].visible, "MIG-0a1b2c3d-0a1b");
  EXPECT_EQ(devices[2].kind, "soft");
  EXPECT_EQ(devices[2].index, 1u);
  EXPECT_EQ(devices[2].memory, uint64_t{4} << 30);
  EXPECT_EQ(devices[2].sms, 16u);
  EXPECT_EQ(devices[3].name, "soft");
  const auto tables = parse_config("[[devices]]\nname = \"soft:0\"\n[[devices]]\nname = \"soft:1\"\nsms = 8", "x");
  ASSERT_TRUE(tables.ok()) << tables.status().message();
  EXPECT_EQ(tables.value().devices[1].sms, 8u);
  EXPECT_FALSE(tables.value().all_gpus);
  EXPECT_TRUE(parse_config("devices = \"all\"", "x").value().all_gpus);
}

TEST_F(ConfigTest, ADeviceMayHaveAPolicyOfItsOwn) {
  const auto config = parse_config(R"(
devices = ["cuda:0", {name = "cuda:1", policy = "fifo", queues = "sdq", planning = "kernelet"}]
[scheduler]
policy = "credit"
)",
                                   "x");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto& devices = config.value().devices;
  const ArbiterOptions first = own_options(config.value().scheduler, devices[0]);
  EXPECT_EQ(choice_of(first), (PolicyChoice{"credit", "mrq"}));
  EXPECT_FALSE(devices[0].planning);
  const ArbiterOptions second = own_options(config.value().scheduler, devices[1]);
  EXPECT_EQ(choice_of(second), (PolicyChoice{"fifo", "sdq"}));
  EXPECT_EQ(devices[1].planning, PlanningMode::kKernelet);
  const std::string none = "devices = [{name = \"cuda:1\", policy = \"fifo\"}]\n[scheduler]\npolicy = \"none\"";
  EXPECT_NE(parse_config(none, "x").status().message().find("'scheduler.policy' is \"none\""), std::string::npos);
}

TEST_F(ConfigTest, SaysWhereADeviceIsWrong) {
  for (const auto& [text, line, why] : std::vector<std::tuple<std::string, int, std::string>>{
           {"\ndevices = 3", 2, "must be a list"},
           {"devices = \"any\"", 1, "must be a list"},
           {"devices = []", 1, "must have 1 to"},
           {"devices = [\n\"soft:0\",\n\"tpu:0\"]", 3, "'tpu:0' is no device"},
           {"devices = [\"soft:0\", \"soft\"]", 1, "'soft' is there twice"},
           {"devices = [\"cuda:1\", \"cuda:1\"]", 1, "'cuda:1' is there twice"},
           {"devices = [\"cuda:01\"]", 1, "is no device"},
           {"devices = [\"cuda:1024\"]", 1, "is no device"},
           {"devices = [\"cuda:-1\"]", 1, "is no device"},
           {"devices = [\"cuda:GPU-\"]", 1, "is no device"},
           {"devices = [\"cuda:GPU-12;3\"]", 1, "is no device"},
           {"devices = [\"soft:x\"]", 1, "is no device"},
           {"devices = [3]", 1, "must be a name"},
           {"[[devices]]\nmemory = \"1G\"", 1, "no text 'name'"},
           {"[[devices]]\nname = \"soft:0\"\nmemory = 5", 3, "'memory' must be a text"},
           {"[[devices]]\nname = \"soft:0\"\nmemory = \"much\"", 3, "is not a size"},
           {"[[devices]]\nname = \"soft:0\"\nmemory = \"1M\"", 3, "below what one virtual GPU needs"},
           {"[[devices]]\nname = \"soft:0\"\nsms = 0", 3, "'sms' must be 1 to 132"},
           {"[[devices]]\nname = \"cuda:0\"\nsms = 8", 3, "for software devices"},
           {"[[devices]]\nname = \"cuda:0\"\ncolour = 8", 3, "'colour' is not known"},
           {"[[devices]]\nname = \"cuda:0\"\npolicy = \"best\"", 3, "no policy 'best'"},
           {"[[devices]]\nname = \"cuda:0\"\nqueues = 2", 3, "must be texts"},
           {"[[devices]]\nname = \"cuda:0\"\nplanning = \"x\"", 3, "x"},
           {"devices = [\"soft:0\"]\n[device]\nmemory = \"1G\"", 2, "leave [device] out"}}) {
    const std::string said = parse_config(text, "x.toml").status().message();
    EXPECT_TRUE(said.starts_with(fmt::format("x.toml:{}:", line)) && said.find(": 'devices': ") != std::string::npos)
        << text << ": " << said;
    EXPECT_NE(said.find(why), std::string::npos) << text << ": " << said;
  }
}

// Each line of it is a comment; without the signs, it says what is built in.
TEST_F(ConfigTest, TheSampleIsWhatIsBuiltIn) {
  const std::string sample = sample_config(config_keys());
  ASSERT_TRUE(parse_config(sample, "x").ok()) << parse_config(sample, "x").status().message();
  std::istringstream lines(sample);
  std::string without;
  for (std::string line; std::getline(lines, line);) {
    const bool devices = line.starts_with("#devices");  // instead of [device]
    if (line.starts_with('#') && !devices && !line.starts_with("# ")) line.erase(0, 1);
    without += line + "\n";
  }
  const auto config = parse_config(without, "x"), built_in = parse_config("", "x");
  ASSERT_TRUE(config.ok()) << config.status().message() << without;
  EXPECT_EQ(config.value().run, built_in.value().run);
  EXPECT_EQ(config.value().first_uid, built_in.value().first_uid);
  EXPECT_EQ(config.value().scheduler.period_ns, built_in.value().scheduler.period_ns);
  EXPECT_EQ(config.value().limits, built_in.value().limits);
  EXPECT_EQ(config.value().devices[0].memory, built_in.value().devices[0].memory);
  EXPECT_TRUE(parse_config("devices = [\"soft:1\"]\n" + sample, "x").ok()) << "an empty [device] is none";
  for (const ConfigKey& key : config_keys()) EXPECT_FALSE(key.value.empty()) << key.key;
}

TEST_F(ConfigTest, NamesWhatIsWrong) {
  const auto message = [](const char* text) { return parse_config(text, "vgpud.toml").status().message(); };
  EXPECT_NE(message("run = 3").find("'run'"), std::string::npos);
  EXPECT_NE(message("[device]\nmemory = \"much\"").find("device.memory"), std::string::npos);
  EXPECT_NE(message("[device]\nname = \"tpu\"").find("tpu"), std::string::npos);
  EXPECT_NE(message("[device]\nindex = 1").find("device.index"), std::string::npos);
  EXPECT_NE(message("[device]\nname = \"cuda\"\nindex = -1").find("device.index"), std::string::npos);
  EXPECT_EQ(message("\n[session]\nwarm_runner = 1"), "vgpud.toml:3:15: 'session.warm_runner' is not known");
  EXPECT_EQ(message("\nrun = 3"), "vgpud.toml:2:7: 'run' must be a text");
  EXPECT_NE(message("[session]\nwarm_runners = 1000").find("warm_runners"), std::string::npos);
  EXPECT_NE(message("[direct]\nmode = \"0999\"").find("octal"), std::string::npos);
  EXPECT_NE(message("run = \"a").find("vgpud.toml:1:"), std::string::npos);
}

TEST_F(ConfigTest, AFileThatWasNamedMustBeThere) {
  EXPECT_EQ(load_config("/nonexistent/vgpud.toml").status().code(), ENOENT);
}

TEST_F(ConfigTest, ReadsTheScheduler) {
  const auto plain = parse_config("", "x");
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(plain.value().scheduler.scheduled);
  EXPECT_EQ(plain.value().scheduler.policy, "band+");
  EXPECT_EQ(plain.value().metrics_address, "");
  const auto config = parse_config(R"(
[scheduler]
policy = "fifo"
queues = "sdq"
period_ms = 10
wait_us = 0
quantum_us = 500
slice_timeout_ms = 1000
depth = 4
[metrics]
listen = "127.0.0.1:9495"
)",
                                   "x");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const ArbiterOptions& options = config.value().scheduler;
  EXPECT_EQ(options.policy, "fifo");
  EXPECT_EQ(options.model, sched::QueueModel::kSdq);
  EXPECT_EQ(options.period_ns, 10'000'000);
  EXPECT_EQ(options.wait_ns, 0);
  EXPECT_EQ(options.quantum_ns, 500'000);
  EXPECT_EQ(options.slice_timeout_ns, 1'000'000'000);
  EXPECT_EQ(options.depth, 4);
  EXPECT_EQ(config.value().metrics_port, 9495);
  EXPECT_FALSE(parse_config("[scheduler]\npolicy = \"none\"", "x").value().scheduler.scheduled);
  const auto old = parse_config("[scheduler]\npatience_ms = 1500", "x");  // the key of earlier versions
  ASSERT_TRUE(old.ok()) << old.status().message();
  EXPECT_EQ(old.value().scheduler.slice_timeout_ns, 1'500'000'000);
}

TEST_F(ConfigTest, ReadsThePlanningMode) {
  const auto plain = parse_config("", "x");
  EXPECT_EQ(plain.value().planning_mode, PlanningMode::kMps);
  EXPECT_FALSE(plain.value().scheduler.charge_by_blocks);
  EXPECT_FALSE(plain.value().scheduler.process_priorities);
  EXPECT_TRUE(parse_config("[scheduler]\nprocess_priorities = true", "x").value().scheduler.process_priorities);
  EXPECT_EQ(plain.value().mps_command, "nvidia-cuda-mps-control");
  const auto config = parse_config("[scheduler]\nplanning = \"slices-fifo\"\n[mps]\ncommand = \"/opt/mps\"", "x");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().planning_mode, PlanningMode::kSlicesFifo);
  const auto old = parse_config("[scheduler]\ncorun_mode = \"kernelet\"", "x");  // the key of earlier versions
  ASSERT_TRUE(old.ok()) << old.status().message();
  EXPECT_EQ(old.value().planning_mode, PlanningMode::kKernelet);
  EXPECT_EQ(config.value().mps_command, "/opt/mps");
}

TEST_F(ConfigTest, OnlyTheLabsVgpudReadsWhatBenchesSet) {
  const std::string opt = "[scheduler]\nplanning = \"opt\"", lab = "[lab]\nplan_seed = 7";
  EXPECT_NE(parse_config(opt, "x").status().message().find("the lab's"), std::string::npos);
  EXPECT_NE(parse_config(lab, "x").status().message().find("vgpud-lab"), std::string::npos);
  std::string seen;
  const ReadLab read = [&seen](const std::string& text, Config*) {
    seen = text;
    return text.find("bad") == std::string::npos ? Status() : Status::error(EINVAL, "bad");
  };
  const auto config = parse_config(opt + "\n" + lab, "x", read);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config.value().lab);
  EXPECT_EQ(config.value().planning_mode, PlanningMode::kOpt);
  EXPECT_NE(seen.find("\"plan_seed\""), std::string::npos) << seen;
  EXPECT_NE(parse_config("[lab]\nbad = 1", "x", read).status().message().find("[lab]: bad"), std::string::npos);
  EXPECT_TRUE(parse_config("", "x", read).ok());
  EXPECT_EQ(seen, "{}");
}

TEST_F(ConfigTest, ThePlansGpuIsTheDevices) {
  PhysicalDevice device;
  device.kind = "cuda";
  device.sms = 78;
  EXPECT_EQ(plan_options(Config(), device).gpu.sms, 78);
}

TEST_F(ConfigTest, ReadsHowKernelsAreCut) {
  const auto config = parse_config("[slices]\nenabled = true\ntimeout_ms = 500\nin_flight = 4", "x");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(slices_text(config.value().slices, {}),
            "enabled=1 threshold_us=4000 in_flight=4 timeout_ms=500 variant=auto");
  EXPECT_TRUE(parse_config("[slices]\ndrop_us = 200", "x").value().slices.rest.ends_with(" drop_us=200"));
  EXPECT_TRUE(parse_config("[slices]\ndrop_strict = true", "x").value().slices.rest.ends_with(" drop_strict=1"));
  EXPECT_FALSE(parse_config("[slices]\ndrop_us = -2", "x").ok());
  EXPECT_TRUE(parse_config("[slices]\nresize = true", "x").value().slices.rest.ends_with(" resize=1"));
  EXPECT_FALSE(parse_config("[slices]\nresize = 1", "x").ok());
  EXPECT_TRUE(parse_config("[slices]\nawait_copies = true", "x").value().slices.rest.ends_with(" await_copies=1"));
  for (const char* text : {"variant = \"sliced\"", "form = \"slice\""}) {  // the latter: of earlier versions
    const auto sliced = parse_config(std::string("[slices]\nenabled = true\n") + text, "x");
    ASSERT_TRUE(sliced.ok()) << sliced.status().message();
    EXPECT_TRUE(sliced.value().slices.rest.ends_with(" variant=sliced")) << sliced.value().slices.rest;
  }
  const SlicesConfig plain = parse_config("", "x").value().slices;
  PhysicalDevice gpu;
  gpu.kind = "cuda";
  EXPECT_TRUE(slices_text(plain, {}).starts_with("enabled=0 "));
  EXPECT_TRUE(slices_text(plain, gpu).starts_with("enabled=1 "));
  EXPECT_FALSE(plain.three_states || plain.take_sms);
  const auto taking = parse_config("[slices]\ntake_us = 15", "x");
  ASSERT_TRUE(taking.ok());
  EXPECT_TRUE(taking.value().slices.take_sms);
  EXPECT_TRUE(taking.value().slices.rest.ends_with(" take_us=15"));
  EXPECT_TRUE(parse_config("[slices]\nthree_states = true", "x").value().slices.three_states);
  EXPECT_FALSE(parse_config("[slices]\nvariant = \"whole\"", "x").ok());
  EXPECT_FALSE(parse_config("[slices]\ntimeout_ms = -1", "x").ok());
}

TEST_F(ConfigTest, RefusesASchedulerThatCannotBe) {
  for (const char* text : {"policy = \"best\"", "policy = 3", "queues = \"three\"", "period_ms = 0", "period_ms = 2.5",
                           "wait_us = -1", "quantum_us = 0", "slice_timeout_ms = 0", "depth = 0", "depth = 9",
                           "depht = 2", "planning = \"best\"", "planning = 3"}) {
    const auto config = parse_config(std::string("[scheduler]\n") + text, "x");
    EXPECT_EQ(config.status().code(), EINVAL) << text;
    EXPECT_NE(config.status().message().find("scheduler."), std::string::npos) << config.status().message();
  }
  EXPECT_NE(parse_config("[scheduler]\npolicy = \"best\"", "x").status().message().find("band+, band, credit, fifo"),
            std::string::npos);
  EXPECT_EQ(parse_config("[metrics]\nlisten = \"9495\"", "x").status().code(), EINVAL);
}

}  // namespace
}  // namespace bandsaw
