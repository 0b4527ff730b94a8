// PTX text to tokens, one at a time and without copying: tokens view the text, which must outlive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

enum class TokenKind : uint8_t {
  kEnd,
  kName,       // add, %r1, $L__BB0_1, _
  kDirective,  // .global, .L1::no_allocate, .2d; text without the leading dot
  kInteger,    // 12, 0x1F, 0b1, 017, with or without U
  kFloat,      // 0f3F800000, 0d..., 1.5, 1e9
  kString,     // text without the quotes, escapes kept
  kSymbol,     // punctuation: one character, or one of << >> <= >= == != && ||
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  Place place;

  bool is(TokenKind wanted, std::string_view wanted_text) const { return kind == wanted && text == wanted_text; }
  bool symbol(std::string_view wanted) const { return is(TokenKind::kSymbol, wanted); }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // Throws ParseError on a character that no token begins with, and on an open comment or string.
  Token next();
  // Everything up to the next '}', which is consumed too: the body of a .section. Call it right after '{'.
  std::string_view raw_until_brace();

 private:
  char at(size_t offset) const { return position_ + offset < text_.size() ? text_[position_ + offset] : '\0'; }
  Place here() const;
  void skip_space();
  void new_line() { ++line_, line_start_ = position_; }
  Token make(TokenKind kind, size_t begin, Place place) const;
  Token number(Place place);
  Token directive(Place place);
  Token string(Place place);
  Token symbol(Place place);

  std::string_view text_;
  size_t position_ = 0, line_start_ = 0;
  uint32_t line_ = 1;
};

}  // namespace bandsaw::ptx
