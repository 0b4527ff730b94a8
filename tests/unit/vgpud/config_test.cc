#include "backend/vgpud/config.h"

#include <gtest/gtest.h>

#include <cstdlib>

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
  EXPECT_EQ(config.value().device.kind, "soft");
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
  EXPECT_EQ(config.value().device.memory, uint64_t{4} << 30);
  EXPECT_EQ(config.value().warm_runners, 3u);
  EXPECT_EQ(config.value().first_uid, 0u);
  EXPECT_EQ(config.value().direct_mode, "0600");
}

TEST_F(ConfigTest, ChoosesAGpu) {
  const auto config = parse_config("[device]\nname = \"cuda\"\nindex = 3\nmemory = \"auto\"", "x");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().device.kind, "cuda");
  EXPECT_EQ(config.value().device.index, 3u);
  EXPECT_EQ(config.value().device.memory, 0u);
}

TEST_F(ConfigTest, NamesWhatIsWrong) {
  const auto message = [](const char* text) { return parse_config(text, "vgpud.toml").status().message(); };
  EXPECT_NE(message("run = 3").find("'run'"), std::string::npos);
  EXPECT_NE(message("[device]\nmemory = \"much\"").find("device.memory"), std::string::npos);
  EXPECT_NE(message("[device]\nname = \"tpu\"").find("tpu"), std::string::npos);
  EXPECT_NE(message("[device]\nindex = 1").find("device.index"), std::string::npos);
  EXPECT_NE(message("[device]\nname = \"cuda\"\nindex = -1").find("device.index"), std::string::npos);
  EXPECT_NE(message("\n[session]\nwarm_runner = 1").find("'session.warm_runner' is not known (line 3)"),
            std::string::npos);
  EXPECT_NE(message("[session]\nwarm_runners = 1000").find("warm_runners"), std::string::npos);
  EXPECT_NE(message("[direct]\nmode = \"0999\"").find("octal"), std::string::npos);
  EXPECT_NE(message("run = \"a").find("vgpud.toml:1"), std::string::npos);
}

TEST_F(ConfigTest, AFileThatWasNamedMustBeThere) {
  EXPECT_EQ(load_config("/nonexistent/vgpud.toml").status().code(), ENOENT);
}

}  // namespace
}  // namespace bandsaw
