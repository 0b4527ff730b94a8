#include "tests/unit/soft/random/program.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace bandsaw::soft::test {

const std::vector<Form>& all_forms() {
  static const std::vector<Form> all = [] {
    std::vector<Form> f;
    add_integer_forms(&f);
    add_bit_forms(&f);
    add_float_forms(&f);
    add_half_forms(&f);
    add_convert_forms(&f);
    add_memory_forms(&f);
    return f;
  }();
  return all;
}

const std::vector<CrossForm>& all_crosses() {
  static const std::vector<CrossForm> all = cross_forms();
  return all;
}

namespace {

// Forms by their first word: else conversions, of which there are most, would be nearly all of a program.
const std::vector<std::vector<size_t>>& families() {
  static const std::vector<std::vector<size_t>> all = [] {
    std::map<std::string, std::vector<size_t>> by_name;
    for (size_t i = 0; i < all_forms().size(); ++i) {
      const std::string& text = all_forms()[i].text;
      std::string name = text.substr(0, text.find_first_of(". "));
      if (name == "cvt") name += std::to_string(i % 8);
      if (text.find("ftz") != std::string::npos) name += "ftz";
      if (text.find("f16") != std::string::npos) name += "half";
      by_name[name].push_back(i);
    }
    std::vector<std::vector<size_t>> f;
    for (auto& [name, list] : by_name) f.push_back(std::move(list));
    return f;
  }();
  return all;
}

std::string hex(uint64_t value, int digits) {
  std::ostringstream out;
  out.width(digits);
  out.fill('0');
  out << std::hex << value;
  return out.str();
}

std::string name(const Operand& operand) {
  const char kind = register_kind(operand.kind);
  if (!operand.constant) return std::string("%") + kind + std::to_string(operand.value);
  if (operand.kind == 'f') return "0f" + hex(operand.value, 8);
  if (operand.kind == 'g') return "0d" + hex(operand.value, 16);
  if (kind == 'd' && operand.value >> 63) return "0x" + hex(operand.value, 16) + "U";
  return std::to_string(extend(operand.value, register_bits(kind)));
}

// The text with its operands, each of its instructions under the guard.
std::string written(const Item& item, const std::string& text) {
  std::string out, guard;
  if (item.guard >= 0) guard = std::string("@") + (item.negated ? "!" : "") + "%p" + std::to_string(item.guard) + " ";
  bool start = true;
  for (size_t i = 0; i < text.size(); ++i) {
    if (start && text[i] == ' ') continue;
    if (start) out += guard;
    start = text[i] == ';';
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    const auto number = static_cast<size_t>(text[++i] - '0');
    out += name(number < item.results.size() ? item.results[number] : item.sources[number - item.results.size()]);
  }
  return out;
}

constexpr const char* kHead = R"(.version 8.6
.target sm_90
.address_size 64
.visible .entry random(.param .u64 table_at, .param .u64 initial_at, .param .u64 results_at, .param .align 8 .b8 table_bytes[128])
{
  .reg .b16 %h<8>, %th<4>;
  .reg .b32 %r<8>, %tr<4>, %turns, %limit, %thread, %block, %count;
  .reg .b64 %d<8>, %td<4>, %table, %initial, %results, %mem, %smem, %lmem;
  .reg .pred %p<8>, %tp, %tq;
  .shared .align 16 .b8 shared_bytes[4096];
  .local .align 16 .b8 local_bytes[64];
  ld.param.u64 %table, [table_at]; ld.param.u64 %initial, [initial_at]; ld.param.u64 %results, [results_at];
  mov.u32 %thread, %tid.x; mov.u32 %block, %ctaid.x; mov.u32 %count, %ntid.x;
  mov.u64 %smem, shared_bytes; mul.wide.u32 %td0, %thread, 64; add.u64 %smem, %smem, %td0;
  mov.u64 %lmem, local_bytes;
  mad.lo.u32 %thread, %block, %count, %thread;
)";

}  // namespace

RandomProgram::RandomProgram(uint64_t seed, unsigned length) : random_(seed) {
  uniform_ = random_() & random_();
  const unsigned parts = 1 + random_() % 3;
  for (unsigned i = 0; i < parts; ++i) segments_.push_back(segment(length / parts, i + 1 == parts));
}

std::vector<Item*> RandomProgram::items() {
  std::vector<Item*> all;
  for (Segment& s : segments_)
    for (Item& i : s) all.push_back(&i);
  return all;
}

Operand RandomProgram::operand(char kind, bool result) {
  Operand o{kind, false, random_() % kRegisters};
  const char in = register_kind(kind);
  if (result || std::string("expy").find(kind) != std::string::npos || random_() % 6) return o;
  static const uint64_t likely[] = {0,
                                    1,
                                    2,
                                    7,
                                    8,
                                    15,
                                    16,
                                    31,
                                    32,
                                    63,
                                    64,
                                    255,
                                    0x7fff,
                                    0x8000,
                                    0xffff,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    ~uint64_t{0},
                                    0x3f800000,
                                    0x3ff0000000000000,
                                    0x7f800000};
  o.constant = true;
  o.value = low(random_() % 4 ? likely[random_() % std::size(likely)] : random_(), register_bits(in));
  if (in == 'h' && kind == 'h') o.value &= 0x7fff;
  return o;
}

void RandomProgram::fill(Item* item, const std::string& operands) {
  const size_t colon = operands.find(':');
  for (size_t i = 0; i < colon; ++i) {
    Operand o;
    bool again;
    do {
      o = operand(operands[i], true);
      again = std::any_of(item->results.begin(), item->results.end(),
                          [&](const Operand& r) { return r.kind == o.kind && r.value == o.value; });
    } while (again);
    item->results.push_back(o);
  }
  for (size_t i = colon + 1; i < operands.size(); ++i) item->sources.push_back(operand(operands[i], false));
}

Item RandomProgram::instruction() {
  Item item;
  const auto& family = families()[random_() % families().size()];
  item.form = family[random_() % family.size()];
  fill(&item, all_forms()[item.form].operands);
  if (random_() % 4 == 0) {
    item.guard = static_cast<int>(random_() % kRegisters);
    item.negated = random_() & 1;
    for (const Operand& o : item.results)
      if (o.kind == 'p') item.guard = -1;
  }
  return item;
}

Item RandomProgram::cross() {
  Item item;
  item.kind = Item::Kind::kCross;
  item.form = random_() % all_crosses().size();
  fill(&item, all_crosses()[item.form].operands);
  for (Operand& o : item.sources)
    if (o.constant) o = {o.kind, false, random_() % kRegisters};
  return item;
}

Segment RandomProgram::segment(unsigned length, bool last) {
  Segment s;
  for (unsigned i = 0; i < 3; ++i)
    if (!last && random_() % 2) s.push_back(cross());
  const size_t first = s.size();
  for (unsigned i = 0; i < length; ++i) {
    Item item = instruction();
    const unsigned choice = random_() % 100;
    if (choice < 12) {
      item = {};
      item.kind = choice < 7 ? Item::Kind::kBranch : choice < 9 ? Item::Kind::kTable : Item::Kind::kLoop;
      item.guard = static_cast<int>(random_() % kRegisters);
      item.negated = random_() & 1;
      const unsigned ways = item.kind == Item::Kind::kTable ? 4 : 1;
      for (unsigned w = 0; w < ways; ++w)
        item.targets.push_back(item.kind == Item::Kind::kLoop
                                   ? first + random_() % (s.size() - first + 1)
                                   : std::min<size_t>(s.size() + 1 + random_() % 12, first + length));
      if (item.kind == Item::Kind::kTable) {
        item.guard = -1;
        item.sources.push_back({'r', false, random_() % kRegisters});
      }
    } else if (choice == 12 && last && random_() % 3 == 0) {
      item = {};
      item.kind = Item::Kind::kEnd;
      item.guard = static_cast<int>(random_() % kRegisters);
    }
    s.push_back(item);
  }
  return s;
}

std::string RandomProgram::text() const {
  std::ostringstream out, set;
  out << kHead;
  out << "  mul.wide.u32 %td0, %thread, 8; add.u64 %initial, %initial, %td0; ld.global.u64 %td1, [%initial];\n"
      << "  mul.wide.u32 %td0, %thread, " << kResultBytes << "; add.u64 %results, %results, %td0;\n"
      << "  add.u64 %mem, %results, " << kResultBytes - 3 * kAreaBytes << ";\n"
      << "  mov.u32 %turns, 0; cvt.u32.u64 %tr1, %td1; and.b32 %limit, %tr1, 7;\n  mov.u64 %td3, 0;\n";
  for (unsigned i = 0; i < kAreaBytes; i += 8)
    out << "  st.shared.u64 [%smem+" << i << "], %td3; st.local.u64 [%lmem+" << i << "], %td3;\n";
  // Registers start with words of the table, chosen by the lane's number or the same for all.
  for (unsigned i = 0; i < 4 * kRegisters; ++i) {
    const unsigned kind = i / kRegisters, number = i % kRegisters;
    if (is_uniform(i))
      out << "  ld.global.u64 %td2, [%table+" << i % 16 * 8 << "];";
    else
      out << "  shr.u64 %td2, %td1, " << i << "; and.b64 %td2, %td2, 15; shl.b64 %td2, %td2, 3; add.u64 %td2, %td2, "
          << "%table; ld.global.u64 %td2, [%td2];";
    if (kind == 0) out << " cvt.u16.u64 %h" << number << ", %td2;\n";
    if (kind == 1) out << " cvt.u32.u64 %r" << number << ", %td2;\n";
    if (kind == 2) out << " mov.b64 %d" << number << ", %td2;\n";
    if (kind == 3) out << " and.b64 %td2, %td2, 1; setp.ne.u64 %p" << number << ", %td2, 0;\n";
  }
  for (size_t n = 0; n < segments_.size(); ++n) {
    const Segment& s = segments_[n];
    auto label = [&](size_t at) { return "L" + std::to_string(n) + "_" + std::to_string(at); };
    std::vector<bool> used(s.size() + 1);
    for (const Item& item : s)
      if (!item.left_out)
        for (size_t t : item.targets) used[t] = true;
    for (size_t i = 0; i <= s.size(); ++i) {
      if (used[i]) out << label(i) << ":\n";
      if (i == s.size() || s[i].left_out) continue;
      const Item& item = s[i];
      out << "  ";
      switch (item.kind) {
        case Item::Kind::kForm:
          out << written(item, all_forms()[item.form].text);
          break;
        case Item::Kind::kCross:
          out << written(item, all_crosses()[item.form].text);
          break;
        case Item::Kind::kBranch:
          out << written(item, "bra " + label(item.targets[0]) + ";");
          break;
        case Item::Kind::kTable:
          out << "and.b32 %tr0, " << name(item.sources[0]) << ", 3; T" << n << "_" << i << ": .branchtargets "
              << label(item.targets[0]) << ", " << label(item.targets[1]) << ", " << label(item.targets[2]) << ", "
              << label(item.targets[3]) << "; brx.idx %tr0, T" << n << "_" << i << ";";
          break;
        case Item::Kind::kLoop:
          out << "add.u32 %turns, %turns, 1; setp.lt.u32 %tp, %turns, %limit; "
              << written(item, "bra C" + std::to_string(n) + "_" + std::to_string(i) + ";") << " bra D" << n << "_" << i
              << "; C" << n << "_" << i << ": @%tp bra " << label(item.targets[0]) << "; D" << n << "_" << i << ":";
          break;
        case Item::Kind::kEnd:
          out << written(item, "exit;");
          break;
      }
      out << "\n";
    }
  }
  unsigned at = 0;
  for (unsigned i = 0; i < kRegisters; ++i, at += 8) out << "  st.global.b64 [%results+" << at << "], %d" << i << ";\n";
  for (unsigned i = 0; i < kRegisters; ++i, at += 4) out << "  st.global.b32 [%results+" << at << "], %r" << i << ";\n";
  for (unsigned i = 0; i < kRegisters; ++i, at += 2) out << "  st.global.b16 [%results+" << at << "], %h" << i << ";\n";
  for (unsigned i = 0; i < kRegisters; ++i, ++at)
    out << "  selp.b16 %th0, 1, 0, %p" << i << "; st.global.u8 [%results+" << at << "], %th0;\n";
  out << "  st.global.u32 [%results+" << at << "], %turns;\n";
  for (unsigned i = 0; i < kAreaBytes; i += 8)
    out << "  ld.shared.u64 %td0, [%smem+" << i << "]; st.global.u64 [%mem+" << kAreaBytes + i << "], %td0;\n"
        << "  ld.local.u64 %td0, [%lmem+" << i << "]; st.global.u64 [%mem+" << 2 * kAreaBytes + i << "], %td0;\n";
  out << "  ret;\n}\n";
  return out.str();
}

}  // namespace bandsaw::soft::test
