#include "tools/vgpuctl/screen.h"

#define NCURSES_NOMACROS  // erase, move, timeout and others are functions
#include <curses.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>

namespace bandsaw::ctl {
namespace {

constexpr int kEscapeDelayMs = 50;  // how long a lone escape waits for the rest of a key's sequence
constexpr int kControlC = 3, kEscape = 27, kDelete = 127;

attr_t attribute(Line::Style style) {
  switch (style) {
    case Line::Style::kTitle:
      return A_BOLD;
    case Line::Style::kHeading:
    case Line::Style::kFooter:
      return A_REVERSE;
    case Line::Style::kPlain:
      break;
  }
  return A_NORMAL;
}

KeyPress read_key(int code) {
  switch (code) {
    case KEY_UP:
      return {Key::kUp};
    case KEY_DOWN:
      return {Key::kDown};
    case KEY_PPAGE:
      return {Key::kPageUp};
    case KEY_NPAGE:
      return {Key::kPageDown};
    case KEY_HOME:
      return {Key::kHome};
    case KEY_END:
      return {Key::kEnd};
    case KEY_ENTER:
    case '\r':
    case '\n':
      return {Key::kEnter};
    case KEY_BACKSPACE:
    case '\b':
    case kDelete:
      return {Key::kBackspace};
    case kEscape:
      return {Key::kEscape};
    case kControlC:
      return {Key::kQuit};
    default:
      return code >= ' ' && code < kDelete ? KeyPress{Key::kCharacter, static_cast<char>(code)} : KeyPress{Key::kOther};
  }
}

}  // namespace

std::unique_ptr<Screen> Screen::open() {
  if (!::isatty(STDOUT_FILENO)) return nullptr;
  std::setlocale(LC_CTYPE, "");
  SCREEN* terminal = ::newterm(nullptr, stdout, stdin);
  if (!terminal) return nullptr;
  return std::unique_ptr<Screen>(new Screen(terminal));
}

Screen::Screen(void* terminal) : terminal_(terminal), keys_(::isatty(STDIN_FILENO)) {
  ::set_term(static_cast<SCREEN*>(terminal));
  ::set_escdelay(kEscapeDelayMs);
  ::raw();  // ctrl-C is a key, and nothing stops the process while the terminal is like this
  ::noecho();
  ::nonl();
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::curs_set(0);
}

Screen::~Screen() {
  ::endwin();
  ::delscreen(static_cast<SCREEN*>(terminal_));
}

void Screen::show(const std::vector<Line>& lines) {
  ::erase();
  for (size_t row = 0; row < lines.size() && row < rows(); ++row) {
    const attr_t style = attribute(lines[row].style);
    ::attrset(static_cast<int>(style));
    ::mvaddnstr(static_cast<int>(row), 0, lines[row].text.c_str(), static_cast<int>(columns()));
    ::mvchgat(static_cast<int>(row), 0, -1, style, 0, nullptr);
  }
  ::refresh();
}

std::optional<KeyPress> Screen::key() {
  const int code = ::getch();
  if (code == ERR) return std::nullopt;
  return read_key(code);
}

void Screen::resize() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
    ::resizeterm(size.ws_row, size.ws_col);
  }
}

size_t Screen::rows() const { return static_cast<size_t>(LINES); }
size_t Screen::columns() const { return static_cast<size_t>(COLS); }

}  // namespace bandsaw::ctl
