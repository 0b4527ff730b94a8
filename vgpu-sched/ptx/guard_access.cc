#include "vgpu-sched/ptx/guard_access.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string_view>

#include "vgpu-sched/ptx/scope.h"
#include "vgpu-sched/ptx/special.h"

namespace bandsaw::ptx {
namespace {

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Of a load, store or atomic operation: the width of its type, times the vector's.
uint64_t bytes_of(const Instruction& i) { return uint64_t{bits_of(i.type())} / 8 * i.vector(); }

bool is_bulk(const Instruction& i) { return i.has("bulk"); }

// cp.async.ca.shared.global [to], [from], bytes
std::vector<GuardedAccess> copy_accesses(const Instruction& i) {
  std::vector<GuardedAccess> found;
  if (i.has("mbarrier") && !i.operands.empty() && i.operands[0].as<Address>())
    found.push_back({i.space() == Space::kShared ? Space::kShared : Space::kNone, 0, 8, 8});
  if (i.operands.size() < 3 || !i.operands[0].as<Address>() || !i.operands[1].as<Address>()) return found;
  const auto* bytes = i.operands[2].as<Integer>();
  const auto alignment = static_cast<uint32_t>(bytes ? std::min<uint64_t>(bytes->bits, 16) : 16);
  found.push_back({Space::kShared, 0, alignment, alignment});
  found.push_back({Space::kNone, 1, alignment, alignment});
  return found;
}

struct MatrixShape {
  const char* name;
  uint32_t m, n, k;
};
constexpr MatrixShape kMatrixShapes[] = {{"m16n16k16", 16, 16, 16},
                                         {"m32n8k16", 32, 8, 16},
                                         {"m8n32k16", 8, 32, 16},
                                         {"m16n16k8", 16, 16, 8},
                                         {"m8n8k4", 8, 8, 4}};

// wmma.load.a.sync.aligned.row.m16n16k16.global.f16 registers, [at], stride; stores have the address first.
std::vector<GuardedAccess> matrix_accesses(const Instruction& i, Space space) {
  const bool load = i.has("load");
  const size_t at = load ? 1 : 0;
  const auto shape = std::find_if(std::begin(kMatrixShapes), std::end(kMatrixShapes),
                                  [&](const MatrixShape& one) { return i.has(one.name); });
  if (shape == std::end(kMatrixShapes) || i.operands.size() < 2 || !i.operands[at].as<Address>()) return {};
  const uint32_t rows = i.has("b") ? shape->k : shape->m, columns = i.has("a") ? shape->k : shape->n;
  const uint32_t lines = i.has("row") ? rows : columns, bytes = bits_of(i.type()) / 8;
  if (bytes == 0 || i.has("row") == i.has("col")) return {};
  GuardedAccess access{space, at, uint64_t{i.has("row") ? columns : rows} * bytes, 16};
  if (i.operands.size() > 2) {
    access.further_lines = lines - 1;
    access.element_bytes = bytes;
    access.stride = 2;
  } else {
    access.bytes *= lines;
  }
  return {access};
}

}  // namespace

std::vector<GuardedAccess> guarded_accesses(const Instruction& i) {
  const Kind kind = kind_of(i);
  if (i.opcode == "cp") return copy_accesses(i);
  const bool hint = is_one_of(i.opcode, {"prefetch", "prefetchu", "applypriority"});
  if (kind != Kind::kLoad && kind != Kind::kStore && kind != Kind::kAtomic && i.opcode != "mbarrier" && !hint)
    return {};
  Space space = i.space();
  if (space == Space::kGlobal) space = Space::kNone;
  if (space != Space::kNone && space != Space::kShared) return {};
  if (i.opcode == "wmma") return matrix_accesses(i, space);
  for (size_t n = 0; n < i.operands.size(); ++n) {
    if (!i.operands[n].as<Address>()) continue;
    uint64_t bytes = hint ? 1 : bytes_of(i);
    if (i.opcode == "ldmatrix" || i.opcode == "stmatrix") bytes = 16;
    if (i.opcode == "mbarrier") bytes = 8;
    return {{space, n, bytes, static_cast<uint32_t>(std::max<uint64_t>(bytes, 1))}};
  }
  return {};
}

std::string why_not_guarded(const Instruction& i) {
  const Kind kind = kind_of(i);
  const bool cluster =
      std::any_of(i.modifiers.begin(), i.modifiers.end(), [](const std::string& m) { return m == "shared::cluster"; });
  const bool harmless = is_one_of(i.opcode, {"mbarrier", "setmaxnreg", "mapa", "getctarank", "stackrestore"});
  std::string what;
  if (kind == Kind::kUnknown && !harmless) what = "has an instruction of unknown reach";
  if (i.opcode == "brkpt") what = "has a breakpoint";
  if (i.opcode == "multimem") what = "uses multicast memory";
  if (is_bulk(i)) what = "copies in bulk";
  if (cluster && kind != Kind::kValue) what = "uses other blocks' shared memory";
  if (i.opcode == "wmma" && (kind == Kind::kLoad || kind == Kind::kStore) && guarded_accesses(i).empty())
    what = "loads or stores a matrix of an unknown form";
  if (i.opcode == "fence" && !i.operands.empty()) what = "has a fence for a tensor map";
  if (what.empty()) {
    for (const GuardedAccess& access : guarded_accesses(i)) {
      const bool known =
          access.bytes != 0 && access.bytes <= 4096 && (i.opcode == "wmma" || (access.bytes & (access.bytes - 1)) == 0);
      if (!known || !i.operands[access.operand].as<Address>()->extra.empty()) what = "has an access of unknown width";
    }
  }
  return what.empty() ? what : what + " (" + i.full_name() + ")";
}

void add_registers(const Operand& operand, std::set<std::string, std::less<>>* names) {
  walk_operand(operand, [&](const Operand& o) {
    if (const auto* r = o.as<Register>()) names->insert(r->name);
    const auto* address = o.as<Address>();
    if (const auto* base = address ? std::get_if<Register>(&address->base) : nullptr) names->insert(base->name);
  });
}

bool is_alone(const Instruction& i) {
  switch (kind_of(i)) {
    case Kind::kValue:
      return !is_one_of(i.opcode,
                        {"shfl", "vote", "match", "redux", "mma", "wmma", "activemask", "elect", "movmatrix"});
    case Kind::kLoad:
    case Kind::kStore:
      return is_one_of(i.opcode, {"ld", "ldu", "st"});
    case Kind::kAtomic:
    case Kind::kFence:
      return true;
    case Kind::kCopy:
      return true;
    case Kind::kUnknown:
      return i.opcode == "mbarrier";
    case Kind::kOther:
      return is_one_of(i.opcode, {"prefetch", "prefetchu", "applypriority"});
    default:
      return false;
  }
}

}  // namespace bandsaw::ptx
