#include "vgpu-sched/ptx/lexer.h"

#include <string>

#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::ptx {
namespace {

// <cctype> depends on the locale; PTX does not.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_'; }
bool is_follow(char c) { return is_word(c) || c == '$'; }

}  // namespace

Place Lexer::here() const { return {line_, static_cast<uint32_t>(position_ - line_start_ + 1)}; }

Token Lexer::make(TokenKind kind, size_t begin, Place place) const {
  return {kind, text_.substr(begin, position_ - begin), place};
}

void Lexer::skip_space() {
  while (position_ < text_.size()) {
    char c = text_[position_];
    if (c == '\n') {
      ++position_;
      new_line();
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      ++position_;
    } else if (c == '/' && at(1) == '/') {
      size_t end = text_.find('\n', position_);
      position_ = end == std::string_view::npos ? text_.size() : end;
    } else if (c == '/' && at(1) == '*') {
      Place begin = here();
      size_t end = text_.find("*/", position_ + 2);
      if (end == std::string_view::npos) throw ParseError(begin.line, begin.column, "expected '*/' to end the comment");
      for (end += 2; position_ < end;)
        if (text_[position_++] == '\n') new_line();
    } else {
      return;
    }
  }
}

Token Lexer::next() {
  skip_space();
  Place place = here();
  size_t begin = position_;
  if (position_ >= text_.size()) return make(TokenKind::kEnd, begin, place);
  char c = text_[position_];
  bool name = is_letter(c) || c == '_' || c == '$' || (c == '%' && (is_follow(at(1))));
  if (name) {
    do ++position_;
    while (position_ < text_.size() && is_follow(text_[position_]));
    return make(TokenKind::kName, begin, place);
  }
  if (is_digit(c)) return number(place);
  if (c == '.') {
    // ".5" is a number unless it is glued to a word, as in tex.2d
    bool glued = begin > 0 && is_follow(text_[begin - 1]);
    return is_digit(at(1)) && !glued ? number(place) : directive(place);
  }
  if (c == '"') return string(place);
  return symbol(place);
}

Token Lexer::number(Place place) {
  size_t begin = position_;
  char prefix = at(0) == '0' ? at(1) : '\0';
  if (prefix == 'f' || prefix == 'F' || prefix == 'd' || prefix == 'D' || prefix == 'x' || prefix == 'X' ||
      prefix == 'b' || prefix == 'B') {
    position_ += 2;
    while (is_word(at(0))) ++position_;
    bool real = prefix == 'f' || prefix == 'F' || prefix == 'd' || prefix == 'D';
    return make(real ? TokenKind::kFloat : TokenKind::kInteger, begin, place);
  }
  bool real = false;
  while (is_digit(at(0))) ++position_;
  if (at(0) == '.' && !is_letter(at(1)) && at(1) != '_') {
    real = true;
    ++position_;
    while (is_digit(at(0))) ++position_;
  }
  bool exponent = at(0) == 'e' || at(0) == 'E';
  if (exponent && (is_digit(at(1)) || ((at(1) == '+' || at(1) == '-') && is_digit(at(2))))) {
    real = true;
    position_ += 2;
    while (is_digit(at(0))) ++position_;
  }
  while (is_word(at(0))) ++position_;  // U, or garbage that the parser names
  return make(real ? TokenKind::kFloat : TokenKind::kInteger, begin, place);
}

Token Lexer::directive(Place place) {
  size_t begin = ++position_;
  while (is_follow(at(0))) {
    ++position_;
    if (at(0) == ':' && at(1) == ':' && is_word(at(2))) position_ += 2;
  }
  if (position_ == begin) throw ParseError(place.line, place.column, "expected a word after '.'");
  return make(TokenKind::kDirective, begin, place);
}

Token Lexer::string(Place place) {
  size_t begin = ++position_;
  while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\n')
    position_ += text_[position_] == '\\' && at(1) != '\n' && position_ + 1 < text_.size() ? 2 : 1;
  if (at(0) != '"') throw ParseError(place.line, place.column, "expected '\"' to end the string");
  Token token = make(TokenKind::kString, begin, place);
  ++position_;
  return token;
}

Token Lexer::symbol(Place place) {
  size_t begin = position_;
  char c = at(0), d = at(1);
  bool twice = c == d && (c == '<' || c == '>' || c == '=' || c == '&' || c == '|');
  bool with_equals = d == '=' && (c == '<' || c == '>' || c == '!');
  if (twice || with_equals) {
    position_ += 2;
    return make(TokenKind::kSymbol, begin, place);
  }
  if (std::string_view("{}[]()<>,;:@!~+-*/%&|^?=").find(c) == std::string_view::npos)
    throw ParseError(place.line, place.column, "unexpected character " + std::to_string(static_cast<uint8_t>(c)));
  ++position_;
  return make(TokenKind::kSymbol, begin, place);
}

std::string_view Lexer::raw_until_brace() {
  Place place = here();
  size_t begin = position_;
  while (position_ < text_.size() && text_[position_] != '}')
    if (text_[position_++] == '\n') new_line();
  if (position_ >= text_.size()) throw ParseError(place.line, place.column, "expected '}' to end the section");
  std::string_view raw = text_.substr(begin, position_ - begin);
  ++position_;
  return raw;
}

}  // namespace bandsaw::ptx
