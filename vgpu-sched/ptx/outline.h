// Where the kernels and functions of a module stand in its text, found without parsing it, and the text of parts of the
// module. A library's module has hundreds of them and a program uses a few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// Immutable.
class Outline {
 public:
  // Of a kernel, or of a function that kernels call; with a body.
  struct Definition {
    std::string name;
    size_t begin, body, end;             // of the definition with its linkage, of its '{', behind its '}'
    uint32_t line, body_line, end_line;  // where these stand, from 1
  };
  using Kernel = Definition;

  Outline(const Outline&) = delete;
  Outline& operator=(const Outline&) = delete;
  // Linear. Throws ParseError where a comment, string or brace does not end.
  explicit Outline(std::string text);

  const std::string& text() const { return text_; }
  // In order; nullptr: none has this name.
  const std::vector<Definition>& kernels() const { return kernels_; }
  const Definition* kernel(const std::string& name) const { return find(kernels_, by_name_, name); }
  const std::vector<Definition>& functions() const { return functions_; }
  const Definition* function(const std::string& name) const { return find(functions_, functions_by_name_, name); }

  // The module without bodies of kernels and without debug sections; without those of functions too, if asked for.
  std::string declarations(bool bodies_of_functions = true) const;
  // The module with this kernel and no other, without debug sections. `keep_lines`: lines have the numbers that they
  // have in the whole text; without, two modules with the same kernel and the same rest often give the same unit.
  std::string unit(const Kernel& kernel, bool keep_lines) const;
  // The same with the bodies of these alone: other functions are declared, other kernels are gone.
  std::string part(const std::set<const Definition*>& kept, bool keep_lines) const;
  // The kernel by itself, what it names not declared; throws ParseError, with the line in the whole text. `first_line`:
  // what is to be added to lines in the tree.
  Function alone(const Kernel& kernel, uint32_t* first_line) const;

 private:
  struct Cut {
    const Definition* what;
    enum Kind { kKernel, kFunction, kSection } kind;
  };
  using Index = std::unordered_map<std::string, size_t>;
  static const Definition* find(const std::vector<Definition>& all, const Index& index, const std::string& name);
  void scan();
  // What becomes of a cut: false: it stays.
  template <class Goes>
  std::string without(bool keep_lines, const Goes& goes) const;

  std::string text_;
  std::vector<Definition> kernels_, functions_, sections_;
  Index by_name_, functions_by_name_;
  std::vector<Cut> cuts_;  // by place
};

}  // namespace bandsaw::ptx
