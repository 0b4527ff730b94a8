#include "backend/vgpud/history.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/vgpuctl/report_table.h"

namespace bandsaw {
namespace {

using nlohmann::json;

constexpr int64_t kHistoryHour = 3600, kHistoryBegin = 500'000 * kHistoryHour, kHistorySecond = 1'000'000'000;
constexpr uint64_t kHistoryMemory = uint64_t{1} << 30;

json use_view(double compute_s, unsigned pid = 7, const std::string& name = "web0") {
  return {{"name", name},
          {"compute", 50},
          {"copy", 25},
          {"memory", 4 * kHistoryMemory},
          {"live",
           {{"pid", pid},
            {"memory_used", kHistoryMemory},
            {"usage", {{"compute_ns", static_cast<uint64_t>(compute_s * 1e9)}, {"copy_ns", 0u}, {"launches", 10u}}}}},
          {"used", {{"compute_ns", static_cast<uint64_t>(compute_s * 1e9)}, {"copy_ns", 0u}}}};
}

class HistoryTest : public ::testing::Test {
 protected:
  HistoryTest() { std::filesystem::create_directories(folder_); }
  ~HistoryTest() override { std::filesystem::remove_all(folder_); }
  History open() const { return History::open(folder_); }
  static json total_of(const History& history, int64_t now = kHistoryBegin, int hours = 24) {
    return history.report("web0", now - hours * kHistoryHour, now)["total"];
  }
  std::string folder_ = testing::TempDir() + "history." + std::to_string(::getpid());
};

TEST_F(HistoryTest, AWrongClockLosesNothing) {
  History history = open();
  history.sample(use_view(1), kHistoryBegin, 100 * kHistorySecond);
  for (const int64_t wrong : {kHistoryBegin + 20 * 365 * 24 * kHistoryHour, int64_t{60}}) {
    history.sample(use_view(2), wrong, 130 * kHistorySecond);
    ASSERT_TRUE(history.save(wrong).ok());
    ASSERT_TRUE(history.report("web0", wrong - kHistoryHour, wrong).is_object());
  }
  history.sample(use_view(4), kHistoryBegin + 30, 160 * kHistorySecond);
  ASSERT_TRUE(history.save(kHistoryBegin + 30).ok());
  const json found = open().report("web0", kHistoryBegin - kHistoryHour, kHistoryBegin + 30);
  ASSERT_EQ(found["hours"].size(), 1u) << "hours to come are no part of a report";
  EXPECT_DOUBLE_EQ(found["total"]["compute_s"], 3);  // one second came to the hour of the wrong clock
}

TEST_F(HistoryTest, UseAndPromisesAreSummed) {
  History history = open();
  history.sample(use_view(1), kHistoryBegin, 100 * kHistorySecond);
  history.sample(use_view(4), kHistoryBegin + 30, 130 * kHistorySecond);
  const json sum = total_of(history, kHistoryBegin + 30);
  EXPECT_DOUBLE_EQ(sum["observed_s"], 30);
  EXPECT_DOUBLE_EQ(sum["compute_s"], 4);
  EXPECT_DOUBLE_EQ(sum["promised_compute_s"], 15);
  EXPECT_DOUBLE_EQ(sum["promised_copy_s"], 15);  // a quarter of two engines
  EXPECT_DOUBLE_EQ(sum["memory_byte_s"], 30.0 * kHistoryMemory);
  EXPECT_DOUBLE_EQ(sum["promised_memory_byte_s"], 120.0 * kHistoryMemory);
  EXPECT_EQ(sum["memory_most"], kHistoryMemory);
  EXPECT_EQ(sum["launches"], 10);
}

TEST_F(HistoryTest, AChangedShareHoldsFromThenOn) {
  History history = open();
  history.sample(use_view(0), kHistoryBegin, kHistorySecond);
  json changed = use_view(0);
  changed["compute"] = 10;
  history.sample(changed, kHistoryBegin + 10, 11 * kHistorySecond);
  EXPECT_DOUBLE_EQ(total_of(history)["promised_compute_s"], 5);
  history.sample(changed, kHistoryBegin + 20, 21 * kHistorySecond);
  EXPECT_DOUBLE_EQ(total_of(history)["promised_compute_s"], 6);
}

TEST_F(HistoryTest, HoursAreApartAndReportsLookBackSoFar) {
  History history = open();
  history.sample(use_view(1), kHistoryBegin + 10, kHistorySecond);
  history.sample(use_view(3), kHistoryBegin + kHistoryHour + 10, 31 * kHistorySecond);
  const json report = history.report("web0", kHistoryBegin, kHistoryBegin + kHistoryHour + 20);
  ASSERT_EQ(report["hours"].size(), 2u);
  EXPECT_EQ(report["hours"][0]["hour"], kHistoryBegin);
  EXPECT_DOUBLE_EQ(report["hours"][1]["compute_s"], 2);
  EXPECT_EQ(history.report("web0", kHistoryBegin + kHistoryHour, kHistoryBegin + 2 * kHistoryHour)["hours"].size(), 1u);
  EXPECT_TRUE(history.report("web", kHistoryBegin, kHistoryBegin + kHistoryHour)["hours"].empty());
}

TEST_F(HistoryTest, WhatRanWhileVgpudWasAwayIsFound) {
  History before = open();
  before.sample(use_view(5), kHistoryBegin, kHistorySecond);
  ASSERT_TRUE(before.save(kHistoryBegin).ok());
  History after = open();
  after.sample(use_view(8), kHistoryBegin + 600, 9 * kHistorySecond);
  EXPECT_DOUBLE_EQ(total_of(after)["compute_s"], 8);
  EXPECT_DOUBLE_EQ(total_of(after)["observed_s"], 0);  // nobody looked
  after.sample(use_view(2, 8), kHistoryBegin + 630, 39 * kHistorySecond);
  EXPECT_DOUBLE_EQ(total_of(after)["compute_s"], 10);  // another session, which counts from 0
}

// Runners count the time between begin and end of their work, which others have a part of.
TEST_F(HistoryTest, WhatOthersHadMeanwhileIsNotItsUse) {
  History history = open();
  for (const int64_t second : {0, 30, 60}) {
    json view = use_view(static_cast<double>(second));
    view["used"] = {{"compute_ns", static_cast<uint64_t>(second / 3 * kHistorySecond)}, {"copy_ns", 0u}};
    history.sample(view, kHistoryBegin + second, (1 + second) * kHistorySecond);
  }
  EXPECT_DOUBLE_EQ(total_of(history)["compute_s"], 20);
}

TEST_F(HistoryTest, ASessionThatIsAwayUsesNothing) {
  History history = open();
  history.sample(use_view(5), kHistoryBegin, kHistorySecond);
  json away = use_view(0);
  away["live"] = nullptr;
  history.sample(away, kHistoryBegin + 30, 31 * kHistorySecond);
  history.sample(use_view(6), kHistoryBegin + 60, 61 * kHistorySecond);
  EXPECT_DOUBLE_EQ(total_of(history)["compute_s"], 6);
  EXPECT_DOUBLE_EQ(total_of(history)["observed_s"], 60);
}

TEST_F(HistoryTest, IsBoundedInTimeAndNumber) {
  History history = open();
  history.sample(use_view(1), kHistoryBegin - 32 * 24 * kHistoryHour, kHistorySecond);
  for (int i = 0; i < 21'000; ++i)
    history.sample(use_view(1, 7, "job-" + std::to_string(i)), kHistoryBegin - 2 * kHistoryHour, kHistorySecond);
  history.sample(use_view(2), kHistoryBegin, 2 * kHistorySecond);
  ASSERT_TRUE(history.save(kHistoryBegin).ok());
  EXPECT_EQ(history.report("web0", 0, kHistoryBegin)["hours"].size(), 1u);
  EXPECT_LT(std::filesystem::file_size(folder_ + "/history"), 8u << 20);
  EXPECT_EQ(open().report("web0", 0, kHistoryBegin)["hours"].size(), 1u);
}

TEST_F(HistoryTest, ADamagedFileIsSetAside) {
  for (const char* text : {"", "{", "[]", R"({"version":2})", R"({"version":1,"hours":[{}],"seen":{}})"}) {
    std::ofstream(folder_ + "/history") << text;
    EXPECT_TRUE(open().report("web0", 0, kHistoryBegin)["hours"].empty()) << text;
    EXPECT_TRUE(std::filesystem::exists(folder_ + "/history.damaged")) << text;
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/history")) << text;
  }
}

TEST(Report, HoursAndDays) {
  EXPECT_EQ(ctl::parse_hours("24h").value(), 24);
  EXPECT_EQ(ctl::parse_hours("31d").value(), 744);
  for (const char* bad : {"", "h", "24", "0h", "-1h", "32d", "745h", "1w", "1h ", "9999999999999999999h"}) {
    EXPECT_FALSE(ctl::parse_hours(bad).ok()) << bad;
  }
}

TEST_F(HistoryTest, ARowForEachHourAndTheSum) {
  History history = open();
  history.sample(use_view(0), kHistoryBegin, kHistorySecond);
  history.sample(use_view(6), kHistoryBegin + 30, 31 * kHistorySecond);
  const auto rows = ctl::report_rows(history.report("web0", kHistoryBegin, kHistoryBegin + 60));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2], (std::vector<std::string>{"all", "30", "6.000", "40.0 %", "0.000", "0.0 %", "1.0 GiB", "25.0 %",
                                               "1.0 GiB", "10"}));
  for (const auto& row : rows) EXPECT_EQ(row.size(), rows[0].size());
}

}  // namespace
}  // namespace bandsaw
