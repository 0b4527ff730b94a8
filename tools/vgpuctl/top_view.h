// What `top` draws on a terminal: the columns that fit, the virtual GPUs in the order that was asked for, as many as
// there is room. Knows no terminal.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bandsaw::ctl {

struct Line {
  enum class Style { kPlain, kTitle, kHeading, kFooter };
  std::string text;
  Style style = Style::kPlain;
};

enum class Key { kUp, kDown, kPageUp, kPageDown, kHome, kEnd, kEnter, kBackspace, kEscape, kQuit, kCharacter, kOther };

struct KeyPress {
  Key key = Key::kOther;
  char character = 0;  // of kCharacter
};

class TopView {
 public:
  // False: the user ends it.
  bool press(KeyPress press);
  // At most `rows` lines of at most `columns` characters. `status`: of GET /v1/status; `rates`: as rates() of
  // top_table.h makes them.
  std::vector<Line> lines(const nlohmann::json& status, const nlohmann::json& rates, size_t rows, size_t columns);

 private:
  void edit(KeyPress press);
  void command(char character);
  std::string footer(size_t matches, size_t total, size_t columns) const;

  char sort_ = 'n';  // the key of a column
  bool reverse_ = false;
  bool editing_ = false;
  std::string filter_;  // a part of the name
  size_t first_ = 0;    // of those that match, in view
  size_t page_ = 1;     // how many were in view last
};

}  // namespace bandsaw::ctl
