// Scalar and SIMD video instructions (PTX ISA 9.7.17): the form is decided here, helpers do the lanes.
#include "backend/device/soft/codegen/video.h"

#include <bit>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

const std::map<std::string_view, VideoOp> kOps = {
    {"vadd", VideoOp::kAdd}, {"vsub", VideoOp::kSub},     {"vabsdiff", VideoOp::kAbsDiff}, {"vmin", VideoOp::kMin},
    {"vmax", VideoOp::kMax}, {"vshl", VideoOp::kShl},     {"vshr", VideoOp::kShr},         {"vmad", VideoOp::kMad},
    {"vset", VideoOp::kSet}, {"vavrg", VideoOp::kAverage}};

const std::pair<const char*, VideoCompare> kCompares[] = {{"eq", VideoCompare::kEq}, {"ne", VideoCompare::kNe},
                                                          {"lt", VideoCompare::kLt}, {"le", VideoCompare::kLe},
                                                          {"gt", VideoCompare::kGt}, {"ge", VideoCompare::kGe}};

VideoCompare compare_of(const ptx::Instruction& in) {
  for (auto& [name, c] : kCompares)
    if (in.has(name)) return c;
  return VideoCompare::kEq;
}

int selector(const std::string& s) {
  if (s.empty()) return 0;
  if (s.size() == 2 && s[0] == 'b' && s[1] >= '0' && s[1] <= '3') return 1 + s[1] - '0';
  if (s.size() == 2 && s[0] == 'h' && s[1] >= '0' && s[1] <= '1') return 5 + s[1] - '0';
  return -1;
}

uint8_t signs_of(const ptx::Instruction& in, bool set) {
  size_t n = set ? 0 : 1;
  uint8_t s = !set && ptx::is_signed(in.type(0)) ? 1 : 0;
  if (ptx::is_signed(in.type(n))) s |= 2;
  if (ptx::is_signed(in.type(n + 1))) s |= 4;
  return s;
}

}  // namespace

V Emitter::video_operand(const Arg& a) {
  Arg plain = a;
  plain.component.clear();
  plain.negated = false;
  return read(plain, 32);
}

void Emitter::op_video(const Op& op) {
  const auto& in = *op.in;
  if (op.args.size() < 3) unsupported(op);
  char width = in.opcode.back();
  if (width == '2' || width == '4') return simd_video(op, width - '0');
  VideoForm form;
  form.op = kOps.at(in.opcode);
  form.compare = compare_of(in);
  form.signs = signs_of(in, form.op == VideoOp::kSet);
  int d = selector(op.args[0].component), a = selector(op.args[1].component), b = selector(op.args[2].component);
  if (d < 0 || a < 0 || b < 0) unsupported(op, "selector");
  form.d = static_cast<uint8_t>(d);
  form.a = static_cast<uint8_t>(a);
  form.b = static_cast<uint8_t>(b);
  if (in.has("sat")) form.flags |= 1;
  if (in.has("wrap")) form.flags |= 2;
  if (op.args[1].negated) form.flags |= 4;
  if (op.args[2].negated) form.flags |= 8;
  if (op.args.size() > 3 && op.args[3].negated) form.flags |= 16;
  if (in.has("po")) form.flags |= 32;
  if (in.has("shr7")) form.flags |= 64;
  if (in.has("shr15")) form.flags |= 128;
  if (form.op != VideoOp::kMad && op.args.size() > 3) {
    form.second = in.has("add")   ? VideoSecond::kAdd
                  : in.has("min") ? VideoSecond::kMin
                  : in.has("max") ? VideoSecond::kMax
                                  : VideoSecond::kMerge;
  } else if (d != 0) {
    unsupported(op, "selector");
  }
  V c = op.args.size() > 3 ? video_operand(op.args[3]) : konst(0, 32);
  Arg to = op.args[0];
  to.component.clear();
  write(op, to,
        lane_helper("bsw_video", {video_operand(op.args[1]), video_operand(op.args[2]), c}, b_.getInt32Ty(),
                    {i64(std::bit_cast<uint64_t>(form))}));
}

void Emitter::simd_video(const Op& op, unsigned elements) {
  const auto& in = *op.in;
  if (op.args.size() < 4) unsupported(op);
  SimdForm form;
  form.op = kOps.at(std::string_view(in.opcode).substr(0, in.opcode.size() - 1));
  form.compare = compare_of(in);
  form.signs = signs_of(in, form.op == VideoOp::kSet);
  form.elements = static_cast<uint8_t>(elements);
  if (in.has("sat")) form.flags |= 1;
  if (in.has("add")) form.flags |= 2;
  char letter = elements == 2 ? 'h' : 'b';
  // "h10", "b7654": the last digit is element 0.
  auto picks = [&](const std::string& s, uint32_t standard) {
    if (s.empty()) return standard;
    if (s.size() != elements + 1 || s[0] != letter) unsupported(op, "selector");
    uint32_t p = 0;
    for (unsigned i = 0; i < elements; ++i) {
      int digit = s[s.size() - 1 - i] - '0';
      if (digit < 0 || digit >= static_cast<int>(2 * elements)) unsupported(op, "selector");
      p |= static_cast<uint32_t>(digit) << (4 * i);
    }
    return p;
  };
  uint32_t a = picks(op.args[1].component, elements == 2 ? 0x10 : 0x3210);
  uint32_t b = picks(op.args[2].component, elements == 2 ? 0x32 : 0x7654);
  form.mask = static_cast<uint8_t>((1 << elements) - 1);
  if (const std::string& m = op.args[0].component; !m.empty()) {
    if (m[0] != letter) unsupported(op, "mask");
    form.mask = 0;
    for (size_t i = 1; i < m.size(); ++i) {
      if (m[i] < '0' || m[i] >= static_cast<char>('0' + elements)) unsupported(op, "mask");
      form.mask |= static_cast<uint8_t>(1 << (m[i] - '0'));
    }
  }
  Arg to = op.args[0];
  to.component.clear();
  write(op, to,
        lane_helper("bsw_video_simd", {video_operand(op.args[1]), video_operand(op.args[2]), video_operand(op.args[3])},
                    b_.getInt32Ty(), {i64(std::bit_cast<uint64_t>(form)), i32(a), i32(b)}));
}

}  // namespace bandsaw::soft
