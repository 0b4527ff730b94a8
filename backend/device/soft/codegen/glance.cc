#include "backend/device/soft/codegen/glance.h"

#include <string.h>

#include <algorithm>

#include "backend/device/soft/codegen/flat.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::soft {
namespace {

using Definition = ptx::Outline::Definition;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}

uint32_t round_up16(uint64_t bytes) { return static_cast<uint32_t>((bytes + 15) / 16 * 16); }

// Calls `visit` with the place of each occurrence.
template <class Visit>
void for_each_place(std::string_view text, std::string_view word, const Visit& visit) {
  for (size_t at = 0; at < text.size();) {
    const void* found = memmem(text.data() + at, text.size() - at, word.data(), word.size());
    if (!found) return;
    at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    visit(at);
    at += word.size();
  }
}

void skip_blanks(std::string_view text, size_t* at) {
  while (*at < text.size() && is_blank(text[*at])) ++*at;
}

// What a call names behind its opcode and, if there are any, results in parentheses.
std::string_view called(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == '.' || is_word_char(text[at]))) ++at;  // .uni
  skip_blanks(text, &at);
  if (at < text.size() && text[at] == '(') {
    at = std::min(text.find(')', at), text.size());
    while (at < text.size() && (text[at] == ')' || text[at] == ',' || is_blank(text[at]))) ++at;
  }
  const size_t begin = at;
  while (at < text.size() && is_word_char(text[at])) ++at;
  return text.substr(begin, at - begin);
}

void find_calls(std::string_view body, Glance* seen) {
  for_each_place(body, "call", [&](size_t at) {
    const bool begins = at > 0 && !is_word_char(body[at - 1]) && body[at - 1] != '.';
    const size_t next = at + 4;
    if (!begins || next >= body.size() || (body[next] != '.' && body[next] != '(' && !is_blank(body[next]))) return;
    const std::string_view name = called(body, next);
    if (name.starts_with('%')) {
      seen->calls_pointers = true;
    } else if (!name.empty()) {
      seen->callees.emplace(name);
    }
  });
}

void find_memory(std::string_view body, std::string_view space, Glance* seen) {
  for_each_place(body, space, [&](size_t at) {
    const size_t next = at + space.size();
    if (at == 0 || !is_blank(body[at - 1]) || next >= body.size() || !is_blank(body[next])) return;
    size_t begin = at;
    while (begin > 0 && std::string_view(";{}\n").find(body[begin - 1]) == std::string_view::npos) --begin;
    const size_t end = std::min(body.find(';', at), body.size() - 1);
    seen->memory.emplace_back(body.substr(begin, end + 1 - begin));
  });
}

// What these variables take.
FlatModule lay_out(const std::vector<std::string>& memory, ptx::Module* tree) {
  std::string text = ".version 9.0\n.target sm_90\n.func f()\n{\n";
  for (const std::string& declaration : memory) text += declaration + "\n";
  *tree = ptx::parse(text + "ret;\n}\n");
  return flatten(*tree);
}

}  // namespace

Glance glance(std::string_view body) {
  Glance seen;
  find_calls(body, &seen);
  find_memory(body, ".local", &seen);
  find_memory(body, ".shared", &seen);
  return seen;
}

Parts::Parts(const ptx::Outline& outline, uint32_t module_shared)
    : outline_(outline), fixed_shared_bytes_(module_shared) {
  const auto look = [this](const Definition& one) {
    const Glance seen = glance(std::string_view(outline_.text()).substr(one.body, one.end - one.body));
    for (const std::string& name : seen.callees)
      if (const Definition* callee = outline_.function(name)) callees_[&one].push_back(callee);
    return seen;
  };
  for (const Definition& kernel : outline_.kernels()) look(kernel);
  for (const Definition& function : outline_.functions()) {
    const Glance seen = look(function);
    nested_ = nested_ || seen.calls_pointers;
    if (seen.memory.empty()) continue;
    ptx::Module tree;
    const FlatModule flat = lay_out(seen.memory, &tree);
    const FlatFunction& f = flat.functions.at(0);
    local_bytes_[&function] = f.local_bytes;
    if (!f.shared_bytes) continue;
    const auto base = static_cast<uint32_t>(shared_behind(fixed_shared_bytes_, f));
    shared_bases_[function.name] = base;
    fixed_shared_bytes_ = base + f.shared_bytes;
  }
  for (const Definition& function : outline_.functions()) {
    std::set<const Definition*> stack;
    behind_pointers_ = std::max(behind_pointers_, depth(function, &stack));
  }
}

uint32_t Parts::depth(const Definition& function, std::set<const Definition*>* stack) {
  if (const auto known = depth_.find(&function); known != depth_.end()) return known->second;
  if (!stack->insert(&function).second) {
    nested_ = true;  // it calls itself
    return 0;
  }
  uint32_t deepest = 0;
  for (const Definition* callee : callees_[&function]) deepest = std::max(deepest, depth(*callee, stack));
  stack->erase(&function);
  constexpr uint32_t kTooDeep = 1 << 29;  // far over the limit: sums stay below 32 bits
  return depth_[&function] = std::min(round_up16(local_bytes_[&function]) + deepest, kTooDeep);
}

std::set<const Definition*> Parts::closure(const Definition& root) const {
  std::set<const Definition*> all{&root};
  for (std::vector<const Definition*> work{&root}; !work.empty();) {
    const auto callees = callees_.find(work.back());
    work.pop_back();
    if (callees == callees_.end()) continue;
    for (const Definition* callee : callees->second)
      if (all.insert(callee).second) work.push_back(callee);
  }
  return all;
}

uint32_t Parts::shared_base(const std::string& function) const {
  const auto found = shared_bases_.find(function);
  return found == shared_bases_.end() ? 0 : found->second;
}

}  // namespace bandsaw::soft
