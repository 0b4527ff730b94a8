// What vgpuctl makes of vgpud's answers.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tools/vgpuctl/chrome_trace.h"
#include "tools/vgpuctl/output.h"
#include "tools/vgpuctl/top_table.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

json view(int64_t at_ms, double busy_ms, double wait_ms, int grants, int calls) {
  return {{"name", "web0"},
          {"at_ns", at_ms * 1'000'000},
          {"compute", 50},
          {"copy", 20},
          {"memory", int64_t{8} << 30},
          {"session", {{"state", "running"}}},
          {"engines",
           {{"compute", {{"busy_ns", busy_ms * 1e6}, {"wait_ns", wait_ms * 1e6}, {"grants", grants}, {"waiting", 1}}}}},
          {"live",
           {{"memory_used", int64_t{1} << 30}, {"processes", {1, 2}}, {"usage", {{"calls", calls}, {"launches", 0}}}}},
          {"used", {{"compute_ns", busy_ms * 1e6}}}};
}

TEST(Rates, AreOverTheTimeThatVgpudSays) {
  const json result = rates(json::array({view(1000, 0, 0, 10, 100)}), json::array({view(1500, 200, 30, 20, 600)}));
  EXPECT_DOUBLE_EQ(result["interval_s"].get<double>(), 0.5);
  const json& vgpu = result["vgpus"][0];
  EXPECT_DOUBLE_EQ(vgpu["engines"]["compute"]["use_percent"].get<double>(), 40);
  EXPECT_EQ(vgpu["engines"]["compute"]["share_percent"], 50);
  EXPECT_EQ(vgpu["engines"]["copy_out"]["share_percent"], 20);
  EXPECT_DOUBLE_EQ(vgpu["engines"]["compute"]["wait_ms"].get<double>(), 3);
  EXPECT_DOUBLE_EQ(vgpu["calls_per_s"].get<double>(), 1000);
  EXPECT_EQ(vgpu["processes"], 2);
  EXPECT_TRUE(vgpu["engines"]["copy_in"]["use_percent"].is_null());
}

TEST(Rates, ACounterThatBeganAnewIsNotNegative) {
  const json result = rates(json::array({view(1000, 900, 0, 10, 1000)}), json::array({view(2000, 100, 0, 10, 50)}));
  EXPECT_DOUBLE_EQ(result["vgpus"][0]["engines"]["compute"]["use_percent"].get<double>(), 10);
  EXPECT_DOUBLE_EQ(result["vgpus"][0]["calls_per_s"].get<double>(), 50);
  EXPECT_TRUE(result["vgpus"][0]["engines"]["compute"]["wait_ms"].is_null());
}

TEST(Rates, WhoIsSuspendedSaysSo) {
  json asleep = view(2000, 0, 0, 0, 0);
  asleep["suspended"] = true;
  const json result = rates(json::array(), json::array({asleep}));
  EXPECT_EQ(result["vgpus"][0]["state"], "suspended");
  EXPECT_TRUE(top_lines(json::object(), result).back().ends_with("suspended"));
}

TEST(Rates, WhoIsAsleepSaysSo) {
  json asleep = view(2000, 0, 0, 0, 0);
  asleep["live"]["suspension"]["asleep"] = true;
  const json result = rates(json::array(), json::array({asleep}));
  EXPECT_EQ(result["vgpus"][0]["state"], "asleep");
  EXPECT_TRUE(top_lines(json::object(), result).back().ends_with("asleep"));
}

TEST(Rates, WhoIsNewOrAwayHasNone) {
  json away = view(2000, 0, 0, 0, 0);
  away["live"] = json();
  away["engines"] = json();
  const json result = rates(json::array(), json::array({away}));
  EXPECT_TRUE(result["vgpus"][0]["calls_per_s"].is_null());
  EXPECT_TRUE(result["vgpus"][0]["memory_used"].is_null());
  EXPECT_EQ(top_lines(json::object(), result).size(), 3u);
}

TEST(TopLines, LineUp) {
  json second = view(2000, 1000, 0, 10, 2'500'000);
  second["name"] = "web0-with-a-much-longer-name";
  const json result = rates({view(1000, 0, 0, 0, 0), second}, json::array({view(2000, 371, 5, 10, 1000), second}));
  const auto lines =
      top_lines({{"devices", {{{"id", "soft:0"}, {"lost", ""}}, {{"id", "soft:1"}, {"lost", "gone"}}}}}, result);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "soft:0, soft:1 (lost), - virtual GPUs, not scheduled");
  EXPECT_EQ(lines[2].find(" 37.1 /  50 %"), lines[1].find("COMPUTE/SHARE"));
  EXPECT_EQ(lines[2].find('/'), lines[3].find('/'));
  EXPECT_EQ(lines[2].find(" MiB"), lines[3].find(" MiB"));
}

json trace_example() {
  return json::parse(R"({"base_ns":5000,"lost":2,"vgpus":["web0","db\"0"],"engines":["compute","copy_in","copy_out"],
    "records":[[0,3,0,0,1000,4000,2500],[0,3,0,1500,2000,5000,1000],[0,4,0,4500,5000,6000,900],[1,0,2,7000,7000,9000,2000],
               [9,0,0,0,0,0,0],[0,0,7,0,0,0,0],[1]]})");
}

ProcessNames trace_names() {
  ProcessNames names;
  add_names(json::parse(R"([{"name":"web0","live":{"processes":[{"slot":3,"comm":"python3","pid":71},{"pid":5}]}},
    {"name":"away","live":null}])"),
            &names);
  return names;
}

TEST(ChromeTrace, HasATrackForEachVirtualGpuAndEngine) {
  const json trace = json::parse(chrome_trace(trace_example(), trace_names()));
  std::map<std::string, int> tracks;
  std::map<std::pair<int, int>, std::string> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") names[{event["pid"], event["tid"]}] = event["args"]["name"];
    if (event["name"] == "process_name") names[{event["pid"], 0}] = event["args"]["name"];
  }
  EXPECT_EQ((names[{1, 0}]), "vGPU web0");
  EXPECT_EQ((names[{2, 0}]), "vGPU db\"0");
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") ++tracks[names.at({event["pid"], 0}) + " " + names.at({event["pid"], event["tid"]})];
  }
  // The second time slice overlaps the first, the third does not; the last did not wait.
  EXPECT_EQ(tracks, (std::map<std::string, int>{{"vGPU web0 compute", 2},
                                                {"vGPU web0 compute 2", 1},
                                                {"vGPU web0 compute queue", 3},
                                                {"vGPU db\"0 copy out", 1}}));
  EXPECT_EQ(trace["otherData"]["lost_time_slices"], 2);
}

TEST(ChromeTrace, TimesAreMicrosecondsAndTheArgumentsTellAll) {
  const json trace = json::parse(chrome_trace(trace_example(), trace_names()));
  const json& first = trace["traceEvents"][2];  // after its counter
  EXPECT_EQ(first["ph"], "X");
  EXPECT_DOUBLE_EQ(first["ts"].get<double>(), 1);
  EXPECT_DOUBLE_EQ(first["dur"].get<double>(), 3);
  EXPECT_EQ(first["args"],
            json::parse(R"({"asked_us":0.0,"granted_us":1.0,"ended_us":4.0,"charged_us":2.5,"waited_us":1.0})"));
  EXPECT_EQ(first["name"], "python3 (71)");
}

TEST(ChromeTrace, ArrowsLeadFromWaitsToTimeSlices) {
  const json trace = json::parse(chrome_trace(trace_example(), trace_names()));
  std::map<int, std::vector<double>> arrows;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "s" || event["ph"] == "f") arrows[event["id"]].push_back(event["ts"]);
  }
  EXPECT_EQ(arrows, (std::map<int, std::vector<double>>{{0, {0, 1}}, {1, {1.5, 2}}, {2, {4.5, 5}}}));
}

TEST(ChromeTrace, AnOpenGateIsNoTimeSlice) {
  json taken = trace_example();
  taken["records"] = json::array({{0, -1, 0, 0, 0, 30'000'000, 3000}});
  const json trace = json::parse(chrome_trace(taken, trace_names()));
  std::map<std::string, json> events;
  std::vector<double> use;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "C") use.push_back(event["args"]["percent"]);
    events[event["ph"].get<std::string>() + " " + event["name"].get<std::string>()] = event;
  }
  EXPECT_EQ(use, (std::vector<double>{0.0, 0.0}));  // 3 us of 30 ms
  ASSERT_TRUE(events.contains("X open"));
  EXPECT_EQ(events["M thread_name"]["args"]["name"], "compute gate");
}

TEST(ChromeTrace, ARowsTimeSlicesNeverOverlap) {
  json taken = trace_example();
  taken["records"] = json::array();
  for (int i = 0; i < 300; ++i) {
    const int granted = i * 7 % 100 * 10;
    taken["records"].push_back({0, 0, 0, granted / 2, granted, granted + 35 + i % 20, 1});
  }
  const json trace = json::parse(chrome_trace(taken, {}));
  std::map<std::pair<int, int>, double> ends;
  size_t slices = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["name"] != "process in slot 0") continue;
    ++slices;
    double& end = ends[{event["pid"], event["tid"]}];
    EXPECT_GE(event["ts"].get<double>() + 1e-9, end);
    end = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(slices, 300u);
}

TEST(ChromeTrace, OfNothingIsStillATrace) {
  EXPECT_TRUE(json::parse(chrome_trace(json::object(), {}))["traceEvents"].empty());
}

}  // namespace
}  // namespace bandsaw::ctl
