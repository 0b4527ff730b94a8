// What `vgpuctl top` draws on a terminal.
#include "tools/vgpuctl/top_view.h"

#include <gtest/gtest.h>

#include "tools/vgpuctl/top_table.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

json engine(double use) {
  return {{"use_percent", use}, {"share_percent", 2}, {"wait_ms", use / 10}, {"time_slices_per_s", 3}, {"waiting", 0}};
}

// 60 virtual GPUs, vm-1 to vm-60; the later, the busier.
json sixty() {
  json vgpus = json::array();
  for (int i = 60; i >= 1; --i) {
    vgpus.push_back({{"name", "vm-" + std::to_string(i)},
                     {"state", "running"},
                     {"processes", 1},
                     {"memory", int64_t{8} << 30},
                     {"memory_used", (int64_t{100} << 20) * i},
                     {"calls_per_s", 12345.6 * i},
                     {"launches_per_s", 100 * i},
                     {"errors_per_s", 0},
                     {"engines", {{"compute", engine(i)}, {"copy_in", engine(0)}, {"copy_out", engine(100)}}}});
  }
  return {{"interval_s", 1}, {"vgpus", vgpus}};
}

json status() {
  return json::parse(R"({"devices":[{"id":"cuda:0","name":"NVIDIA H200"}],"vgpus":60,
                         "scheduler":{"policy":"band+","queues":"mrq"}})");
}

class TopViewTest : public ::testing::Test {
 protected:
  std::vector<Line> draw(size_t rows = 24, size_t columns = 80) { return view_.lines(status(), all_, rows, columns); }
  bool type(const std::string& text) {
    bool goes_on = true;
    for (const char c : text) goes_on = view_.press({Key::kCharacter, c});
    return goes_on;
  }
  // Names in view, in order.
  std::vector<std::string> names(size_t rows = 24) {
    std::vector<std::string> result;
    for (const Line& line : draw(rows)) {
      if (line.text.starts_with("vm-")) result.push_back(line.text.substr(0, line.text.find(' ')));
    }
    return result;
  }
  json all_ = sixty();
  TopView view_;
};

TEST_F(TopViewTest, FitsAnyTerminal) {
  for (const size_t columns : {1, 20, 40, 80, 132, 300}) {
    for (const size_t rows : {1, 2, 4, 5, 24, 100}) {
      const auto lines = draw(rows, columns);
      EXPECT_LE(lines.size(), rows);
      for (const Line& line : lines) EXPECT_LE(line.text.size(), columns) << line.text;
    }
  }
}

TEST_F(TopViewTest, SaysTheMostOnEightyColumns) {
  const auto lines = draw();
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_EQ(lines[0].text, "cuda:0: NVIDIA H200, 60 virtual GPUs, band+ mrq");
  EXPECT_EQ(lines[1].text, "all: compute 1830.0 %, copy in 0.0 %, copy out 6000.0 %, memory 178.7 GiB");
  EXPECT_EQ(lines[2].text, "NAME   COMPUTE% SHARE WAIT ms   IN%  OUT%     MEMORY MEM% LAUNCH/S PROC");
  EXPECT_EQ(lines[3].text, "vm-1        1.0     2    0.10   0.0 100.0  100.0 MiB    1      100    1");
  EXPECT_EQ(lines[2].style, Line::Style::kHeading);
  EXPECT_EQ(lines[23].style, Line::Style::kFooter);
  EXPECT_NE(lines[23].text.find("1-20 of 60"), std::string::npos);
}

TEST_F(TopViewTest, NoKeyIsCutOffOnEightyColumns) {
  for (const char* keys : {"n", "c", "w", "l", "r", "/vm-1"}) {
    type(keys);
    view_.press({Key::kEnter, 0});
    std::string footer = draw().back().text;
    std::erase(footer, ' ');
    EXPECT_TRUE(footer.ends_with("ncswiomlp")) << footer;
  }
}

TEST_F(TopViewTest, SaysWhoIsSuspended) {
  all_["vgpus"][59]["state"] = kSuspended;  // vm-1
  const auto lines = draw();
  EXPECT_TRUE(draw(24, 100)[1].text.ends_with(", 1 suspended"));
  EXPECT_TRUE(lines[3].text.starts_with("vm-1  suspended     2 ")) << lines[3].text;
  EXPECT_EQ(lines[4].text.find("suspended"), std::string::npos);
}

TEST_F(TopViewTest, SaysWhoIsAsleep) {
  all_["vgpus"][59]["state"] = kAsleep;  // vm-1
  all_["vgpus"][58]["state"] = kSuspended;
  const auto lines = draw();
  EXPECT_TRUE(draw(24, 100)[1].text.ends_with(", 1 suspended, 1 asleep"));
  EXPECT_TRUE(lines[3].text.starts_with("vm-1     asleep     2 ")) << lines[3].text;
}

TEST_F(TopViewTest, SaysMoreWhereThereIsRoom) {
  const std::string heading = draw(24, 200)[2].text;
  for (const char* more : {"CALLS/S", "ERRORS/S", "STATE", "OF", "GPU"})
    EXPECT_NE(heading.find(more), std::string::npos);
  all_["vgpus"][0]["name"] = "a-name-of-more-than-thirty-characters";
  EXPECT_NE(draw(24, 200)[3].text.find("a-name-of-more-than-thirty-characters "), std::string::npos);
  EXPECT_TRUE(draw(24, 80)[3].text.starts_with("a-name-of-mor~ ")) << draw(24, 80)[3].text;
}

TEST_F(TopViewTest, NumbersInNamesAreNumbers) {
  const auto seen = names(100);
  ASSERT_EQ(seen.size(), 60u);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], "vm-" + std::to_string(i + 1));
}

TEST_F(TopViewTest, Scrolls) {
  EXPECT_EQ(names().front(), "vm-1");
  view_.press({Key::kDown});
  EXPECT_EQ(names().front(), "vm-2");
  view_.press({Key::kPageDown});
  EXPECT_EQ(names().front(), "vm-22");
  view_.press({Key::kEnd});
  EXPECT_EQ(names().back(), "vm-60");
  EXPECT_EQ(names().size(), 20u);
  view_.press({Key::kDown});
  EXPECT_EQ(names().back(), "vm-60");
  view_.press({Key::kPageUp});
  EXPECT_EQ(names().back(), "vm-40");
  EXPECT_EQ(names(14).size(), 10u);  // a smaller terminal
  view_.press({Key::kHome});
  view_.press({Key::kUp});
  EXPECT_EQ(names().front(), "vm-1");
}

TEST_F(TopViewTest, SortsByAKey) {
  ASSERT_TRUE(type("c"));
  EXPECT_EQ(names().front(), "vm-60");
  EXPECT_NE(draw()[23].text.find("by use of compute"), std::string::npos) << draw()[23].text;
  type("r");
  EXPECT_EQ(names().front(), "vm-1");
  type("o");  // all have the same, so they stay by name
  EXPECT_EQ(names().front(), "vm-1");
  all_["vgpus"][0]["memory_used"] = json();  // vm-60: not known is least
  type("m");
  EXPECT_EQ(names().front(), "vm-59");
  view_.press({Key::kEnd});
  EXPECT_EQ(names().back(), "vm-60");
  type("n");
  EXPECT_EQ(names().front(), "vm-1");
}

TEST_F(TopViewTest, ShowsThoseWithAPartOfTheirName) {
  view_.press({Key::kPageDown});
  ASSERT_TRUE(type("/2q"));  // a key of a command is text here
  EXPECT_TRUE(names().empty());
  view_.press({Key::kBackspace});
  EXPECT_EQ(names(), (std::vector<std::string>{"vm-2", "vm-12", "vm-20", "vm-21", "vm-22", "vm-23", "vm-24", "vm-25",
                                               "vm-26", "vm-27", "vm-28", "vm-29", "vm-32", "vm-42", "vm-52"}));
  EXPECT_NE(draw()[23].text.find("filter: 2_"), std::string::npos);
  view_.press({Key::kEnter});
  EXPECT_NE(draw()[23].text.find("1-15 of 15 with '2' (of 60)"), std::string::npos);
  EXPECT_EQ(names().size(), 15u);
  view_.press({Key::kEscape});
  EXPECT_EQ(names().size(), 20u);
}

TEST_F(TopViewTest, EndsByQOrControlC) {
  EXPECT_FALSE(type("q"));
  EXPECT_TRUE(type("x"));
  type("/");
  EXPECT_FALSE(view_.press({Key::kQuit}));
}

TEST_F(TopViewTest, NothingIsNoMistake) {
  all_["vgpus"] = json::array();
  EXPECT_EQ(draw().size(), 24u);
  EXPECT_NE(draw()[23].text.find("0-0 of 0"), std::string::npos);
  view_.press({Key::kEnd});
  EXPECT_EQ(draw().size(), 24u);
  all_ = json::parse(R"({"interval_s":null,"vgpus":[{"name":"vm-1","engines":{}}]})");
  EXPECT_EQ(names().size(), 1u);
}

}  // namespace
}  // namespace bandsaw::ctl
