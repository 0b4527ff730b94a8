#include "tools/ptx/report.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace bandsaw::tools {
namespace {

using ptx::Analysis;
using ptx::Idempotence;
using ptx::InstructionMix;
using ptx::Spin;

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), free);
  return status == 0 && text ? text.get() : name;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + '"';
}

template <class List, class F>
std::string array(const List& list, F&& each) {
  std::string out = "[";
  for (const auto& element : list) out += (out.size() > 1 ? ", " : "") + each(element);
  return out + "]";
}

struct Share {
  const char* name;
  double weight;
};

std::vector<Share> shares(const InstructionMix& m) {
  return {{"float32", m.float32},
          {"float64", m.float64},
          {"half", m.half},
          {"matrix", m.matrix},
          {"integer", m.integer},
          {"special", m.special},
          {"move", m.move},
          {"load.global", m.load_global},
          {"store.global", m.store_global},
          {"load.shared", m.load_shared},
          {"store.shared", m.store_shared},
          {"load.local", m.load_local},
          {"store.local", m.store_local},
          {"load.const", m.load_constant},
          {"texture", m.texture},
          {"atomic", m.atomic},
          {"branch", m.branch},
          {"barrier", m.barrier},
          {"other", m.other}};
}

// The four most frequent kinds.
std::string instruction_mix_text(const InstructionMix& mix) {
  std::vector<Share> list = shares(mix);
  std::sort(list.begin(), list.end(), [](const Share& a, const Share& b) { return a.weight > b.weight; });
  const double total = std::max(1.0, mix.total());
  std::string text;
  for (size_t i = 0; i < 4 && list[i].weight > 0; ++i)
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", list[i].name, 100 * list[i].weight / total);
  return text;
}

const char* spelling(Spin spin) {
  return spin == Spin::kNone ? "none" : spin == Spin::kLowerBlocks ? "lower blocks" : "any";
}

const char* spelling(Idempotence idempotence) {
  return idempotence == Idempotence::kNo ? "no" : idempotence == Idempotence::kYes ? "yes" : "if disjoint";
}

std::string remarks(const Analysis& a) {
  std::string text;
  auto add = [&](bool is, const char* what) {
    if (is) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  add(a.order_dependent, "blocks in order only");
  add(a.spin == Spin::kLowerBlocks, "waits for lower blocks");
  add(a.dynamic_shared, "dynamic shared memory");
  add(a.prints, "prints");
  add(a.allocates, "allocates");
  return text;
}

struct Summary {
  size_t kernels = 0, sliceable = 0, persistent = 0, idempotent = 0;
};

Summary summary_of(const std::vector<Row>& rows) {
  Summary summary;
  for (const Row& row : rows) {
    ++summary.kernels;
    summary.sliceable += row.analysis.not_sliceable.empty();
    summary.persistent += row.analysis.not_persistent.empty();
    summary.idempotent += row.analysis.idempotence != Idempotence::kNo;
  }
  return summary;
}

std::string json_of(const Row& row) {
  const Analysis& a = row.analysis;
  auto number = [](auto n) { return fmt::format("{}", n); };
  std::string mix;
  for (const Share& share : shares(a.instruction_mix))
    mix += fmt::format("{}{}: {}", mix.empty() ? "" : ", ", quoted(share.name), share.weight);
  return fmt::format(
      "{{\"name\": {}, \"module\": {}, \"sliceable\": {}, \"not_sliceable\": {}, \"persistent\": {}, "
      "\"not_persistent\": {}, \"order_dependent\": {}, \"spin\": {}, \"idempotent\": {}, \"not_idempotent\": {}, "
      "\"reads\": {}, \"writes\": {}, \"variable_reads\": {}, \"variable_writes\": {}, \"parameter_bytes\": {}, "
      "\"static_shared_bytes\": {}, \"dynamic_shared\": {}, \"prints\": {}, \"allocates\": {}, "
      "\"reads_block_index_yz\": {}, \"load_global_bytes\": {}, \"store_global_bytes\": {}, \"scattered\": {}, "
      "\"instruction_mix\": {{{}}}}}",
      quoted(a.name), quoted(row.from), a.not_sliceable.empty(), quoted(a.not_sliceable), a.not_persistent.empty(),
      quoted(a.not_persistent), a.order_dependent, quoted(spelling(a.spin)), quoted(spelling(a.idempotence)),
      quoted(a.not_idempotent), array(a.reads, number), array(a.writes, number), array(a.variable_reads, quoted),
      array(a.variable_writes, quoted), a.parameter_bytes, a.static_shared_bytes, a.dynamic_shared, a.prints,
      a.allocates, a.reads_block_index_yz, a.instruction_mix.load_global_bytes, a.instruction_mix.store_global_bytes,
      a.instruction_mix.scattered, mix);
}

double percent(size_t part, size_t of) { return of ? 100.0 * static_cast<double>(part) / static_cast<double>(of) : 0; }

}  // namespace

std::string table(const std::vector<Row>& rows) {
  std::string text;
  std::string from;
  for (const Row& row : rows) {
    if (row.from != from) text += fmt::format("{}{}\n", from.empty() ? "" : "\n", row.from);
    from = row.from;
    const Analysis& a = row.analysis;
    text += fmt::format("  {}\n", readable(a.name));
    text += fmt::format("    grid slices {}\n", a.not_sliceable.empty() ? "yes" : "no: " + a.not_sliceable);
    text += fmt::format("    persistent  {}\n", a.not_persistent.empty() ? "yes" : "no: " + a.not_persistent);
    text += fmt::format("    idempotent  {}\n",
                        a.not_idempotent.empty() ? spelling(a.idempotence) : "no: " + a.not_idempotent);
    text += fmt::format("    mix         {}\n", instruction_mix_text(a.instruction_mix));
    text += fmt::format("    uses        {} bytes of parameters, {} bytes of shared memory\n", a.parameter_bytes,
                        a.static_shared_bytes);
    if (const std::string more = remarks(a); !more.empty()) text += fmt::format("    remarks     {}\n", more);
  }
  const Summary s = summary_of(rows);
  text += fmt::format("{}{} kernels: {} can be sliced ({:.1f} %), {} made persistent, {} idempotent\n",
                      rows.empty() ? "" : "\n", s.kernels, s.sliceable, percent(s.sliceable, s.kernels), s.persistent,
                      s.idempotent);
  return text;
}

std::string json(const std::vector<Row>& rows, const std::vector<std::string>& notes) {
  const Summary s = summary_of(rows);
  return fmt::format(
      "{{\"kernels\": {},\n \"notes\": {},\n \"summary\": {{\"kernels\": {}, \"sliceable\": {}, \"persistent\": {}, "
      "\"idempotent\": {}}}}}\n",
      array(rows, json_of), array(notes, quoted), s.kernels, s.sliceable, s.persistent, s.idempotent);
}

}  // namespace bandsaw::tools
