// Where the kernels of a module stand in its text, found without parsing it, and the text of parts of the module. A
// library's module has hundreds of kernels and a program uses a few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// Immutable.
class Outline {
 public:
  struct Kernel {
    std::string name;
    size_t begin, body, end;  // of the definition with its linkage, of its '{', behind its '}'
    uint32_t line;            // of `begin`, from 1
  };

  // Linear. Throws ParseError where a comment, string or brace does not end.
  explicit Outline(std::string text);

  const std::string& text() const { return text_; }
  // Those with bodies, in order; nullptr: none has this name.
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const Kernel* kernel(const std::string& name) const;

  // The module without bodies of kernels and without debug sections.
  std::string declarations() const;
  // The module with this kernel and no other, without debug sections. `keep_lines`: lines have the numbers that they
  // have in the whole text; without, two modules with the same kernel and the same rest often give the same unit.
  std::string unit(const Kernel& kernel, bool keep_lines) const;
  // The kernel by itself, what it names not declared; throws ParseError, with the line in the whole text. `first_line`:
  // what is to be added to lines in the tree.
  Function alone(const Kernel& kernel, uint32_t* first_line) const;

 private:
  struct Cut {
    size_t begin, end;
    const Kernel* kernel;  // null: a section
  };
  void scan();
  std::string without(const Kernel* kept, bool keep_lines, bool declare) const;

  std::string text_;
  std::vector<Kernel> kernels_;
  std::vector<std::pair<size_t, size_t>> sections_;
  std::unordered_map<std::string, size_t> by_name_;
  std::vector<Cut> cuts_;  // by place
};

}  // namespace bandsaw::ptx
