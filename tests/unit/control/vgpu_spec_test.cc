#include "backend/control/vgpu_spec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backend/control/mps_priority.h"
#include "backend/control/paths.h"

namespace bandsaw {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

VgpuSpec spec(const std::string& name, uint64_t memory, uint32_t compute = 1, uint32_t copy = 1) {
  VgpuSpec result;
  result.name = name;
  result.memory = memory;
  result.compute = compute;
  result.copy = copy;
  return result;
}

TEST(Name, FollowsTheRule) {
  EXPECT_TRUE(valid_name("web0"));
  EXPECT_TRUE(valid_name("0-a"));
  EXPECT_TRUE(valid_name(std::string(63, 'a')));
  for (const std::string& bad : {std::string(), std::string("-a"), std::string("Web"), std::string("a/b"),
                                 std::string(".."), std::string("a\0b", 3), std::string(64, 'a'), std::string("a b")}) {
    EXPECT_FALSE(valid_name(bad)) << bad;
  }
}

TEST(Size, ReadsUnits) {
  EXPECT_EQ(parse_size("8G").value(), 8 * kGiB);
  EXPECT_EQ(parse_size("512m").value(), uint64_t{512} << 20);
  EXPECT_EQ(parse_size("1.5GiB").value(), kGiB * 3 / 2);
  EXPECT_EQ(parse_size("4096").value(), 4096u);
  EXPECT_EQ(parse_size("2KB").value(), 2048u);
}

TEST(Size, RefusesNonsense) {
  for (const char* bad : {"", "G", "-1G", "8X", "8GG", "1e300", "nan", "inf", "8 G", "99999999P"}) {
    EXPECT_FALSE(parse_size(bad).ok()) << bad;
  }
}

TEST(SpecJson, SurvivesTheWayThere) {
  VgpuSpec before = spec("web0", 8 * kGiB, 30, 20), after;
  before.cap = 60;
  before.reserve = 10;
  before.priority = -7;
  before.latency_us = 250;
  before.kernel_deadline_ms = 5000;
  before.sharing = Sharing::kMps;
  before.group = "ml";
  before.guard = before.clear_shared = true;
  before.idle_suspend_s = 0;
  before.domain = "dom";
  before.index = 7;
  ASSERT_TRUE(from_json(to_json(before), true, &after).ok());
  EXPECT_EQ(to_json(before), to_json(after));
}

TEST(GuardText, NamesWhatIsOn) {
  VgpuSpec one;
  EXPECT_EQ(guard_text(one), "");
  one.clear_shared = true;
  EXPECT_EQ(guard_text(one), "clear-shared");
  one.guard = one.allow_machine_code = true;
  EXPECT_EQ(guard_text(one), "guard,machine-code,clear-shared");
}

TEST(SpecJson, RefusesWrongTypesAndUnknownFieldsAndChangesNothing) {
  for (const char* text : {"[]",
                           "3",
                           R"({"memory":"8G"})",
                           R"({"memory":-1})",
                           R"({"guard":"on"})",
                           R"({"memory":1.5})",
                           R"({"compute":101})",
                           R"({"compute":99999999999})",
                           R"({"compute":18446744073709551615})",
                           R"({"compute":0})",
                           R"({"copy":-1})",
                           R"({"copy":"30"})",
                           R"({"copy":30.5})",
                           R"({"cap":0})",
                           R"({"cap":101})",
                           R"({"reserve":-1})",
                           R"({"reserve":101})",
                           R"({"priority":101})",
                           R"({"priority":-101})",
                           R"({"priority":1.5})",
                           R"({"priority":18446744073709551615})",
                           R"({"priority":"high"})",
                           R"({"latency_us":19})",
                           R"({"latency_us":1000001})",
                           R"({"latency_us":18446744073709551615})",
                           R"({"latency_us":-1})",
                           R"({"latency_us":250.5})",
                           R"({"latency_us":"none"})",
                           R"({"kernel_deadline_ms":86400001})",
                           R"({"kernel_deadline_ms":-1})",
                           R"({"group":"M L"})",
                           R"({"group":"alone"})",
                           R"({"group":7})",
                           R"({"idle_suspend_s":2678401})",
                           R"({"idle_suspend_s":-1})",
                           R"({"idle_suspend_s":"never"})",
                           R"({"colour":1})",
                           R"({"index":3})",
                           R"({"name":"x"})"}) {
    VgpuSpec kept = spec("web0", kGiB, 30);
    EXPECT_EQ(from_json(nlohmann::json::parse(text), false, &kept).code(), EINVAL) << text;
    EXPECT_EQ(to_json(kept), to_json(spec("web0", kGiB, 30)));
  }
}

TEST(SpecJson, ARefusalNamesTheFigureAndItsBounds) {
  VgpuSpec kept = spec("web0", kGiB);
  EXPECT_EQ(from_json({{"compute", -5}}, false, &kept).message(), "'compute' is -5 %, and must be 1 to 100 %");
  EXPECT_EQ(from_json({{"copy", 0}}, false, &kept).message(), "'copy' is 0 %, and must be 1 to 100 %");
  EXPECT_EQ(from_json({{"cap", 101}}, false, &kept).message(), "'cap' is 101 %, and must be 1 to 100 %");
  EXPECT_NE(from_json({{"priority", 101}}, false, &kept).message().find("-100 to 100"), std::string::npos);
  EXPECT_EQ(from_json({{"latency_us", 19}}, false, &kept).message(),
            "'latency_us' is 19, and must be 20 to 1000000 microseconds, or 0 for no bound");
}

TEST(SpecJson, ReadsWhatEarlierVersionsStored) {
  VgpuSpec old;
  ASSERT_TRUE(from_json({{"name", "web0"}, {"compute", 0}, {"copy", 30}}, true, &old).ok());
  EXPECT_EQ(old.compute, 1u);
  EXPECT_EQ(old.copy, 30u);
  EXPECT_EQ(old.cap, 100u);
  EXPECT_EQ(old.reserve, 0u);
  EXPECT_EQ(old.priority, 0);
  EXPECT_EQ(old.latency_us, 0u);
}

TEST(MpsPriorityTest, WhoHasABoundOrAPriorityGoesFirst) {
  struct Case {
    uint32_t latency_us;
    int32_t priority;
    MpsPriority wanted;
  };
  for (const Case& one : {Case{0, 0, MpsPriority::kBelowNormal}, Case{0, kPriorityMin, MpsPriority::kBelowNormal},
                          Case{0, 1, MpsPriority::kNormal}, Case{20, 0, MpsPriority::kNormal},
                          Case{20, kPriorityMin, MpsPriority::kNormal}, Case{0, kPriorityMax, MpsPriority::kNormal}}) {
    EXPECT_EQ(mps_priority(one.latency_us, one.priority), one.wanted) << one.latency_us << " " << one.priority;
  }
  // MPS's own numbers.
  EXPECT_EQ(static_cast<int>(MpsPriority::kNormal), 0);
  EXPECT_EQ(static_cast<int>(MpsPriority::kBelowNormal), 1);
  for (const MpsPriority one : {MpsPriority::kNormal, MpsPriority::kBelowNormal}) {
    EXPECT_EQ(parse_mps_priority(to_text(one)).value(), one);
  }
  EXPECT_EQ(parse_mps_priority("high").status().code(), EINVAL);
}

TEST(SpecJson, SharingIsOneOfTwo) {
  VgpuSpec one;
  EXPECT_EQ(one.sharing, Sharing::kTimeSliced);
  ASSERT_TRUE(from_json({{"sharing", "mps"}}, false, &one).ok());
  EXPECT_EQ(one.sharing, Sharing::kMps);
  for (const nlohmann::json& bad : {nlohmann::json("mine"), nlohmann::json(1), nlohmann::json("MPS")}) {
    const Status refused = from_json({{"sharing", bad}}, false, &one);
    EXPECT_EQ(refused.code(), EINVAL) << bad;
    EXPECT_EQ(one.sharing, Sharing::kMps);
  }
  EXPECT_EQ(parse_sharing("mine").status().message(), "no sharing 'mine'; there are time-sliced, mps");
}

TEST(SpecJson, WordsOfEarlierVersionsAreReadAndNotWritten) {
  VgpuSpec one;
  for (const auto& [old, now] : {std::pair{"corun", "mps"}, std::pair{"isolated", "time-sliced"}}) {
    ASSERT_TRUE(from_json({{"sharing", old}}, true, &one).ok());
    EXPECT_EQ(to_json(one)["sharing"], now);
    EXPECT_EQ(read_share_texts({{"sharing", old}}).value()["sharing"], now);
  }
}

TEST(PlanningMode, NamesAreReadBack) {
  for (const char* name : {"mps", "consolidation", "slices-fifo", "kernelet", "persistent-greedy", "maestro-antt",
                           "maestro-stp", "opt", "random", "even"}) {
    EXPECT_EQ(to_text(parse_planning_mode(name).value()), std::string(name));
  }
  for (const char* name : {"consolidation", "opt", "random", "even"}) {
    EXPECT_TRUE(is_lab_mode(parse_planning_mode(name).value())) << name;
  }
  EXPECT_EQ(planning_mode_names(), (std::vector<std::string>{"mps", "slices-fifo", "kernelet", "persistent-greedy",
                                                             "maestro-antt", "maestro-stp"}));
  EXPECT_EQ(parse_planning_mode("best").status().code(), EINVAL);
}

TEST(ShareTexts, AreReadBack) {
  VgpuSpec before = spec("web0", 8 * kGiB, 30, 20);
  before.priority = -4;
  before.sharing = Sharing::kMps;
  before.sms = 16;
  before.latency_us = 250;
  const ShareTexts texts = share_texts(to_json(before));
  EXPECT_EQ(texts, (ShareTexts{{"memory", "8G"},
                               {"compute", "30"},
                               {"copy", "20"},
                               {"cap", "100"},
                               {"reserve", "0"},
                               {"priority", "-4"},
                               {"latency_us", "250"},
                               {"sharing", "mps"},
                               {"sms", "16"}}));
  VgpuSpec after = spec("web0", 0);
  ASSERT_TRUE(from_json(read_share_texts(texts).value(), false, &after).ok());
  EXPECT_EQ(to_json(before), to_json(after));
  EXPECT_EQ(share_texts({{"memory", 1536u << 20}, {"live", 3}}), (ShareTexts{{"memory", "1536M"}}));
  EXPECT_EQ(share_texts({{"memory", kGiB + 1}}), (ShareTexts{{"memory", "1073741825"}}));
}

TEST(ShareTexts, RefuseWhatIsNoShare) {
  for (const ShareTexts& bad :
       {ShareTexts{{"colour", "1"}}, ShareTexts{{"memory", "lots"}}, ShareTexts{{"compute", ""}},
        ShareTexts{{"compute", "30%"}}, ShareTexts{{"compute", " 30"}}, ShareTexts{{"cap", "99999999999999999999"}},
        ShareTexts{{"sharing", "mine"}}, ShareTexts{{"sharing", ""}}, ShareTexts{{"cap", "1"}, {"cap", "2"}}}) {
    EXPECT_EQ(read_share_texts(bad).status().code(), EINVAL) << bad[0].first << bad[0].second;
  }
}

TEST(NearestName, FindsASlip) {
  EXPECT_EQ(nearest_name("wbe0", {"web0", "db0"}), "web0");
  EXPECT_EQ(nearest_name("web", {"web0", "db0"}), "web0");
  EXPECT_EQ(nearest_name("something", {"web0"}), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace bandsaw
