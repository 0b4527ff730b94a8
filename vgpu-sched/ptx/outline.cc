#include "vgpu-sched/ptx/outline.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::ptx {
namespace {

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}

// Goes over a text, item by item at module level. Knows comments, strings and braces, and nothing else.
class Scanner {
 public:
  explicit Scanner(const std::string& text) : text_(text) {}

  // What ends next at module level.
  struct Found {
    enum { kEnd, kKernel, kFunction, kSection } what = kEnd;
    Outline::Definition definition{};
  };
  Found next() {
    start_item();
    while (skip_blank(), at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ';') {
        ++at_;
        if (!std::exchange(pragma_, false)) start_item();  // a function's pragma stands before its body
      } else if (c == '{') {
        const size_t body = at_;
        const uint32_t body_line = line_;
        if (item_ == kSection) return section(body);
        braces();
        const Outline::Definition definition{name_, begin_, body, at_, begin_line_, body_line, line_};
        if (item_ == kKernel) return {Found::kKernel, definition};
        if (item_ == kFunction) return {Found::kFunction, definition};
      } else if (c == '"') {
        string();
      } else if (c == '(' || c == ')') {
        parentheses_ += c == '(' ? 1 : -1;
        ++at_;
      } else if (c == '.' && at_ + 1 < text_.size() && in_word(text_[at_ + 1])) {
        directive();
      } else if (in_word(c)) {
        name();
      } else {
        ++at_;
      }
    }
    return {};
  }

 private:
  enum Item { kOther, kKernel, kFunction, kSection };

  void start_item() {
    item_ = kOther;
    linked_ = pragma_ = false;
    name_.clear();
    parentheses_ = 0;
  }

  [[noreturn]] void fail(const char* expected, size_t from) const {
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(from), '\n') + 1;
    throw ParseError(static_cast<uint32_t>(line), 1, expected);
  }

  void skip_blank() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else if (c == '/' && at_ + 1 < text_.size() && (text_[at_ + 1] == '/' || text_[at_ + 1] == '*')) {
        comment();
      } else {
        return;
      }
    }
  }

  void comment() {
    const size_t from = at_;
    if (text_[at_ + 1] == '/') {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return;
    }
    const size_t end = text_.find("*/", at_ + 2);
    if (end == text_.npos) fail("expected '*/' to end the comment", from);
    line_ += static_cast<uint32_t>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(from), text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end + 2;
  }

  void string() {
    const size_t from = at_++;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size() || text_[at_] != '"') fail("expected '\"' to end the string", from);
    ++at_;
  }

  // From a '{' behind the '}' that belongs to it.
  void braces() {
    const size_t from = at_;
    size_t depth = 0;
    for (;;) {
      at_ += std::strcspn(text_.c_str() + at_, "{}\"/\n");
      if (at_ >= text_.size()) fail("expected '}' to end what begins here", from);
      const char c = text_[at_];
      if (c == '"') {
        string();
      } else if (c == '/') {
        const bool comments = at_ + 1 < text_.size() && (text_[at_ + 1] == '/' || text_[at_ + 1] == '*');
        comments ? comment() : void(++at_);
      } else {  // a NUL, too, which ends a C string
        ++at_;
        line_ += c == '\n';
        depth += c == '{' ? 1 : 0;
        if (c == '}' && --depth == 0) return;
      }
    }
  }

  Found section(size_t body) {
    const size_t end = text_.find('}', body);
    if (end == text_.npos) fail("expected '}' to end the section", body);
    line_ += static_cast<uint32_t>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(body), text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end + 1;
    return {Found::kSection, {"", begin_, body, at_, begin_line_, begin_line_, line_}};
  }

  std::string_view word() {
    const size_t from = at_;
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    return std::string_view(text_).substr(from, at_ - from);
  }

  void directive() {
    const size_t from = at_++;
    const std::string_view what = word();
    const bool linkage = what == "visible" || what == "weak" || what == "extern" || what == "common";
    Item item = kOther;
    if (what == "entry") item = kKernel;
    if (what == "func") item = kFunction;
    if (what == "section") item = kSection;
    pragma_ = what == "pragma";
    if (item_ != kOther || (!linkage && item == kOther)) return;
    if (!linked_) {
      begin_ = from;
      begin_line_ = line_;
    }
    linked_ = linkage;
    item_ = item;
  }

  // A kernel's or function's name is the first word behind .entry or .func that is not in parentheses.
  void name() {
    const std::string_view what = word();
    if ((item_ == kKernel || item_ == kFunction) && name_.empty() && parentheses_ == 0) name_ = what;
  }

  const std::string& text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  Item item_ = kOther;
  bool linked_ = false;
  bool pragma_ = false;  // the last directive was one
  size_t begin_ = 0;
  uint32_t begin_line_ = 1;
  int parentheses_ = 0;
  std::string name_;
};

// What becomes of an item in the text of a part.
enum class Fate { kStays, kDeclared, kGoes };

}  // namespace

Outline::Outline(std::string text) : text_(std::move(text)) {
  while (!text_.empty() && text_.back() == '\0') text_.pop_back();
  scan();
  const auto cut = [this](const std::vector<Definition>& all, Cut::Kind kind) {
    for (const Definition& one : all) cuts_.push_back({&one, kind});
  };
  cut(kernels_, Cut::kKernel);
  cut(functions_, Cut::kFunction);
  cut(sections_, Cut::kSection);
  std::sort(cuts_.begin(), cuts_.end(), [](const Cut& a, const Cut& b) { return a.what->begin < b.what->begin; });
  for (size_t i = 0; i < kernels_.size(); ++i) by_name_.emplace(kernels_[i].name, i);
  for (size_t i = 0; i < functions_.size(); ++i) functions_by_name_.emplace(functions_[i].name, i);
}

void Outline::scan() {
  Scanner scanner(text_);
  for (;;) {
    Scanner::Found found = scanner.next();
    if (found.what == Scanner::Found::kEnd) return;
    if (found.what == Scanner::Found::kKernel) kernels_.push_back(std::move(found.definition));
    if (found.what == Scanner::Found::kFunction) functions_.push_back(std::move(found.definition));
    if (found.what == Scanner::Found::kSection) sections_.push_back(std::move(found.definition));
  }
}

const Outline::Definition* Outline::find(const std::vector<Definition>& all, const Index& index,
                                         const std::string& name) {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : &all[found->second];
}

template <class Goes>
std::string Outline::without(bool keep_lines, const Goes& goes) const {
  std::string made;
  size_t at = 0;
  const auto copy = [&](size_t to) { made.append(text_, at, to - at), at = to; };
  for (const Cut& cut : cuts_) {
    const Fate fate = goes(cut);
    if (fate == Fate::kStays) continue;
    const bool declared = fate == Fate::kDeclared;
    copy(declared ? cut.what->body : cut.what->begin);
    if (declared) made += ';';
    if (keep_lines) made.append(cut.what->end_line - (declared ? cut.what->body_line : cut.what->line), '\n');
    at = cut.what->end;
    // Blanks between what is gone would tell where that stood.
    if (!keep_lines) at = std::min(text_.find_first_not_of(" \t\r\n", at), text_.size());
  }
  copy(text_.size());
  return made;
}

std::string Outline::declarations(bool bodies_of_functions) const {
  return without(true, [bodies_of_functions](const Cut& cut) {
    if (cut.kind == Cut::kSection) return Fate::kGoes;
    return cut.kind == Cut::kFunction && bodies_of_functions ? Fate::kStays : Fate::kDeclared;
  });
}

std::string Outline::unit(const Kernel& kernel, bool keep_lines) const {
  return without(keep_lines, [&kernel](const Cut& cut) {
    return cut.kind == Cut::kFunction || cut.what == &kernel ? Fate::kStays : Fate::kGoes;
  });
}

std::string Outline::part(const std::set<const Definition*>& kept, bool keep_lines) const {
  return without(keep_lines, [&kept](const Cut& cut) {
    if (kept.contains(cut.what)) return Fate::kStays;
    return cut.kind == Cut::kFunction ? Fate::kDeclared : Fate::kGoes;
  });
}

Function Outline::alone(const Kernel& kernel, uint32_t* first_line) const {
  constexpr std::string_view kHead = ".version 9.0\n.target sm_90\n";
  std::string text(kHead);
  text.append(text_, kernel.begin, kernel.end - kernel.begin);
  *first_line = kernel.line - 3;
  try {
    Module module = parse(text, false);
    for (Item& item : module.items)
      if (auto* function = std::get_if<Function>(&item)) return std::move(*function);
  } catch (const ParseError& error) {
    throw ParseError(error.line + *first_line, error.column, error.message);
  }
  throw ParseError(kernel.line, 1, "expected a kernel");
}

}  // namespace bandsaw::ptx
