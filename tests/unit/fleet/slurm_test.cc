#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tools/fleet/slurm/account.h"
#include "tools/fleet/slurm/gres.h"
#include "tools/fleet/slurm/job_record.h"
#include "tools/fleet/slurm/process.h"
#include "tools/fleet/slurm/request.h"
#include "tools/fleet/slurm/settings.h"

namespace bandsaw::slurm {
namespace {

std::string wrong(const std::string& text) { return parse_request(text, false).status().message(); }

TEST(SlurmRequest, IsReadAndWritten) {
  const auto read = parse_request("memory=8G,compute=30,latency-us=500,sharing=mps", false);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const VgpuSpec& each = read.value().each;
  EXPECT_EQ(each.memory, uint64_t{8} << 30);
  EXPECT_EQ(each.compute, 30u);
  EXPECT_EQ(each.copy, 1u);
  EXPECT_EQ(each.latency_us, 500u);
  EXPECT_EQ(each.sharing, Sharing::kMps);
  const auto again = parse_request(to_text(read.value()), false);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(to_text(again.value()), to_text(read.value()));
}

TEST(SlurmRequest, OnlySlurmctldSaysHowMany) {
  EXPECT_FALSE(wrong("memory=1G,count=2").empty());
  EXPECT_FALSE(parse_request("memory=1G", true).ok());
  EXPECT_FALSE(parse_request("memory=1G,count=17", true).ok());
  EXPECT_FALSE(parse_request("memory=1G,count=0", true).ok());
  const auto read = parse_request("count=2,memory=1G", true);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().count, 2u);
  EXPECT_EQ(parse_request(to_text(read.value()), true).value().count, 2u);
}

TEST(SlurmRequest, WhatIsWrongIsNamed) {
  EXPECT_NE(wrong("memory=1G,compuet=3").find("did you mean 'compute'?"), std::string::npos);
  EXPECT_NE(wrong("memory=1G,reserve=3").find("'reserve' is not known"), std::string::npos);
  EXPECT_NE(wrong("memory=1G,memory=2G").find("twice"), std::string::npos);
  EXPECT_NE(wrong("memory").find("WORD=VALUE"), std::string::npos);
  EXPECT_NE(wrong("memory=").find("WORD=VALUE"), std::string::npos);
  EXPECT_NE(wrong("memory=1M").find("at least"), std::string::npos);
  EXPECT_NE(wrong("").find("memory=8G"), std::string::npos);
  EXPECT_FALSE(wrong("memory=1G,compute=0").empty());
  EXPECT_FALSE(wrong("memory=1G,compute=101").empty());
  EXPECT_FALSE(wrong(std::string(600, 'x')).empty());
  EXPECT_FALSE(wrong("memory=1G,,compute=3").empty());
}

TEST(SlurmGres, VirtualGpusAreCounted) {
  EXPECT_EQ(count_vgpus("").value(), 0u);
  EXPECT_EQ(count_vgpus("gres:gpu:tesla:2").value(), 0u);
  EXPECT_EQ(count_vgpus("gres:vgpu").value(), 1u);
  EXPECT_EQ(count_vgpus("gres/vgpu:3").value(), 3u);
  EXPECT_EQ(count_vgpus("gres:gpu:2,gres:vgpu:4").value(), 4u);
  for (const char* bad : {"gres:vgpu:17", "gres:vgpu:x", "gres:vgpu:-1", "gres:vgpu:type:1", "gres:vgpu:1,gres:vgpu:1",
                          "gres:vgpumem:1G", "gres:vgpucompute:1,gres:vgpu:1", "vgpucopy=3"}) {
    EXPECT_FALSE(count_vgpus(bad).ok()) << bad;
  }
}

TEST(SlurmGres, MemoryAndSharesOfAllAreAsked) {
  auto request = parse_request("count=3,memory=1G,compute=20", true);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(with_consumables("gres:vgpu:3", request.value()),
            "gres:vgpu:3,gres:vgpumem:3221225472,gres:vgpucompute:60,gres:vgpucopy:3");
}

TEST(SlurmSettings, NodesHaveTheirOwn) {
  const auto read = parse_settings({"run=/run/%n/bandsaw-%n", "libraries=/opt/lib"});
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().of_node("n7").run, "/run/n7/bandsaw-n7");
  EXPECT_EQ(read.value().of_node("n7").libraries, "/opt/lib");
  EXPECT_EQ(read.value().of_node("n7").jobs, kJobsFolder);
  EXPECT_EQ(read.value().of_node("").run, "/run//bandsaw-");
  EXPECT_FALSE(parse_settings({"rnu=/run"}).ok());
  EXPECT_FALSE(parse_settings({"run"}).ok());
}

TEST(SlurmSettings, OurLibrariesStandFirstAndOnce) {
  EXPECT_EQ(with_folder_first("/ours", ""), "/ours");
  EXPECT_EQ(with_folder_first("/ours", "/a:/b"), "/ours:/a:/b");
  EXPECT_EQ(with_folder_first("/ours", "/ours:/a:/ours::/b"), "/ours:/a:/b");
}

class SlurmJobs : public testing::Test {
 protected:
  ~SlurmJobs() override { std::filesystem::remove_all(folder_); }
  std::string folder_ = testing::TempDir() + "slurm_jobs." + std::to_string(::getpid());
};

TEST_F(SlurmJobs, AreRemembered) {
  EXPECT_EQ(read_record(folder_, 7).status().code(), ENOENT);
  EXPECT_TRUE(recorded_jobs(folder_).empty());
  ASSERT_TRUE(write_record(folder_, 7, {{"slurm-7-0", "slurm-7-1"}, "count=2,memory=1G", "", ""}).ok());
  ASSERT_TRUE(write_record(folder_, 7, {{"slurm-7"}, "count=1,memory=1G", "no \"room\"", ""}).ok());
  const auto read = read_record(folder_, 7);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().vgpus, std::vector<std::string>{"slurm-7"});
  EXPECT_EQ(read.value().refusal, "no \"room\"");
  EXPECT_EQ(recorded_jobs(folder_), std::vector<uint32_t>{7});
  remove_record(folder_, 7);
  EXPECT_TRUE(recorded_jobs(folder_).empty());
}

TEST_F(SlurmJobs, DamagedRecordsAreNoticed) {
  ASSERT_TRUE(write_record(folder_, 7, {}).ok());
  for (const char* text : {"", "{", "[]", "{\"vgpus\":3}", "{\"vgpus\":[1],\"request\":\"\",\"refusal\":\"\"}"}) {
    std::ofstream(record_path(folder_, 7)) << text;
    EXPECT_EQ(read_record(folder_, 7).status().code(), EPROTO) << text;
  }
}

TEST(SlurmAccount, EachNodeAddsItsLinesOnce) {
  const Account account{7, "n0", {"vgpu=slurm-7 node=n0 compute_s=1.000"}};
  const std::string one = merged("", account);
  EXPECT_EQ(one, account.lines[0]);
  EXPECT_EQ(merged(one, account), one);
  EXPECT_EQ(merged("seen by hand", account), "seen by hand; " + account.lines[0]);
}

TEST(SlurmProcess, OutputAndStatus) {
  const auto out = run_program({"sh", "-c", "echo out; echo err >&2; exit 3"}, STDOUT_FILENO);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out.value().output, "out\n");
  EXPECT_EQ(out.value().status, 3);
  EXPECT_EQ(run_program({"sh", "-c", "kill -9 $$"}, STDERR_FILENO).value().status, -1);
  EXPECT_EQ(run_program({"/no/such/program"}, STDERR_FILENO).status().code(), ENOENT);
}

}  // namespace
}  // namespace bandsaw::slurm
