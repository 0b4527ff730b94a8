// The terminal that `top` draws on, through ncurses.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tools/vgpuctl/top_view.h"

namespace bandsaw::ctl {

// Has the terminal's alternate screen while it lives.
class Screen {
 public:
  // Null: stdout is no terminal, or ncurses knows nothing of its type.
  static std::unique_ptr<Screen> open();
  ~Screen();
  Screen(const Screen&) = delete;

  // In place: ncurses writes what has changed.
  void show(const std::vector<Line>& lines);
  // What was typed since; nothing more: no value.
  std::optional<KeyPress> key();
  bool has_keys() const { return keys_; }
  // Asks the terminal for its size again.
  void resize();
  size_t rows() const;
  size_t columns() const;

 private:
  explicit Screen(void* terminal);
  void* terminal_;  // ncurses' SCREEN
  bool keys_ = false;
};

}  // namespace bandsaw::ctl
