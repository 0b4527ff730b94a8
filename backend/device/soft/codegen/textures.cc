// tex, tld4, txq, suld, sust, sured, suq (PTX ISA 9.7.10, 9.7.11): helpers read textures, and say where a surface's
// bytes are for the helpers of memory.
#include <map>

#include "backend/device/soft/codegen/atomics.h"
#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/sample.h"
#include "backend/device/soft/codegen/texture_ops.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kGlobal = 1;  // AccessSpace

const std::pair<const char*, Geometry> kGeometries[] = {{"1d", Geometry::k1d},
                                                        {"2d", Geometry::k2d},
                                                        {"3d", Geometry::k3d},
                                                        {"a1d", Geometry::kLayered1d},
                                                        {"a2d", Geometry::kLayered2d},
                                                        {"cube", Geometry::kCube},
                                                        {"acube", Geometry::kLayeredCube}};

const std::pair<const char*, TextureQuery> kQueries[] = {
    {"width", TextureQuery::kWidth},
    {"height", TextureQuery::kHeight},
    {"depth", TextureQuery::kDepth},
    {"channel_data_type", TextureQuery::kChannelType},
    {"channel_order", TextureQuery::kChannelOrder},
    {"normalized_coords", TextureQuery::kNormalizedCoordinates},
    {"array_size", TextureQuery::kLayers},
    {"num_mipmap_levels", TextureQuery::kLevels},
    {"num_samples", TextureQuery::kSamples},
    {"force_unnormalized_coords", TextureQuery::kUnnormalizedForced},
    {"filter_mode", TextureQuery::kFilterMode},
    {"addr_mode_0", TextureQuery::kAddressMode0},
    {"addr_mode_1", TextureQuery::kAddressMode1},
    {"addr_mode_2", TextureQuery::kAddressMode2},
    {"memory_layout", TextureQuery::kMemoryLayout}};

template <class T, size_t N>
const T* named(const ptx::Instruction& in, const std::pair<const char*, T> (&table)[N]) {
  for (const auto& [name, value] : table)
    if (in.has(name)) return &value;
  return nullptr;
}

// The parts of a vector, or the one that stands without braces.
std::vector<const Arg*> parts(const Arg& arg) {
  if (arg.kind != ArgKind::kVector) return {&arg};
  std::vector<const Arg*> all;
  for (const Arg& e : arg.elements) all.push_back(&e);
  return all;
}

}  // namespace

bool is_texture_opcode(std::string_view opcode) {
  return opcode == "tex" || opcode == "tld4" || opcode == "txq" || opcode == "suld" || opcode == "sust" ||
         opcode == "sured" || opcode == "suq";
}

// The handles of all lanes: a number in a register, or what a reference holds.
V Emitter::texture_handles(const Op& op, const Arg& address) {
  if (address.kind != ArgKind::kAddress || address.bits != 0) unsupported(op, "texture operand");
  V handle;
  if (address.reg >= 0) {
    handle = read_reg(address.reg);
    if (handle->getType()->getScalarSizeInBits() != 64) unsupported(op, "a handle of 32 bits");
  } else if (address.var && address.var->space == ptx::Space::kGlobal && address.var->bytes >= 8) {
    Arg base = address;
    base.kind = ArgKind::kVar;
    V pointer = b_.CreateIntToPtr(read_address_constant(op, base), b_.getPtrTy());
    handle = b_.CreateLoad(b_.getInt64Ty(), pointer, true);
  } else {
    unsupported(op, "texture operand");
  }
  V slot = frame_scratch("addresses", 8 * kLanes);
  b_.CreateStore(splat(handle), slot);
  return slot;
}

V Emitter::words_of(const Op& op, const Arg& arg, size_t count, const char* name, size_t at, size_t room) {
  const auto words = parts(arg);
  if (words.size() < count) unsupported(op, "too few coordinates");
  V slot = frame_scratch(name, 4 * kLanes * room);
  for (size_t i = 0; i < count; ++i) {
    b_.CreateStore(splat(read(*words[i], 32)),
                   b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), slot, (at + i) * 4 * kLanes));
  }
  return slot;
}

void Emitter::op_tex(const Op& op) {
  const auto& in = *op.in;
  const bool gather = in.opcode == "tld4";
  const Geometry* geometry = named(in, kGeometries);
  const size_t source = op.pair ? 2 : 1;
  if (!geometry || in.vector() != 4 || in.type_count() != 2) unsupported(op);
  const ptx::Type result = in.type(0), coordinate = in.type(1);
  if (ptx::bits_of(result) != 32 || (coordinate != ptx::Type::kF32 && coordinate != ptx::Type::kS32)) unsupported(op);
  const Arg& address = op.args.at(source);
  if (address.elements.size() != 1) unsupported(op, "a sampler of its own");
  FetchForm form;
  form.geometry = *geometry;
  form.integers = coordinate == ptx::Type::kS32;
  form.level = in.has("level") ? LevelMode::kExplicit : in.has("grad") ? LevelMode::kGradient : LevelMode::kBase;
  const size_t extra = form.level == LevelMode::kBase ? 0 : form.level == LevelMode::kExplicit ? 1 : 2;
  if (op.args.size() != source + 1 + extra) unsupported(op, "offset or comparison");
  if (form.integers && (is_cube(*geometry) || gather)) unsupported(op);
  if (form.level == LevelMode::kGradient && is_cube(*geometry)) unsupported(op);
  const size_t axes = dimensions(*geometry);
  if (gather) {
    if (*geometry != Geometry::k2d && *geometry != Geometry::kLayered2d) unsupported(op);
    const std::pair<const char*, uint32_t> components[] = {{"r", 1}, {"g", 2}, {"b", 3}, {"a", 4}};
    const uint32_t* component = named(in, components);
    if (!component) unsupported(op);
    form.gather = *component;
  }
  vec_ = true;
  V handles = texture_handles(op, address);
  V words = words_of(op, address.elements[0], axes + is_layered(*geometry), "words", 0, 4);
  V more = frame_scratch("gradients", 6 * 4 * kLanes);
  if (form.level == LevelMode::kExplicit) more = words_of(op, op.args[source + 1], 1, "gradients", 0, 6);
  if (form.level == LevelMode::kGradient) {
    // A direction has room for three numbers; what an axis lacks is not read.
    words_of(op, op.args[source + 1], axes, "gradients", 0, 6);
    words_of(op, op.args[source + 2], axes, "gradients", 3, 6);
  }
  V out = frame_scratch("texels", 4 * 4 * kLanes);
  call_helper("bsw_texture", b_.getVoidTy(), {warp_, op_mask(op), handles, words, more, out, i32(form.packed())});
  write_words(op, op.args[0], out, 4, 32, false);
  if (op.pair) write(op, op.args[1], llvm::Constant::getAllOnesValue(int_type(1, true)));  // resident
}

void Emitter::write_words(const Op& op, const Arg& to, V from, size_t count, unsigned bits, bool sign) {
  const auto results = parts(to);
  if (results.size() != count) unsupported(op, "vector size");
  for (size_t i = 0; i < count; ++i) {
    V at = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), from, i * (bits / 8) * kLanes);
    write(op, *results[i], b_.CreateLoad(int_type(bits, true), at), sign);
  }
}

void Emitter::op_texture_query(const Op& op) {
  const auto& in = *op.in;
  const TextureQuery* query = named(in, kQueries);
  if (!query || !op.args.at(1).elements.empty()) unsupported(op);
  vec_ = true;
  V handles = texture_handles(op, op.args[1]);
  V levels = frame_scratch("levels", 4 * kLanes), out = frame_scratch("out", 8 * kLanes);
  b_.CreateStore(op.args.size() > 2 ? splat(read(op.args[2], 32)) : konst(0, 32), levels);
  call_helper("bsw_texture_query", b_.getVoidTy(),
              {warp_, op_mask(op), handles, levels, out, i32(uint32_t(*query)), i32(in.opcode == "suq")});
  write(op, op.args[0], b_.CreateLoad(int_type(32, true), out));
}

// The lanes whose access takes place; their addresses are in frame_scratch("addresses").
V Emitter::surface_addresses(const Op& op, const Arg& address, unsigned bytes) {
  const auto& in = *op.in;
  const Geometry* geometry = named(in, kGeometries);
  if (!geometry || is_cube(*geometry) || address.elements.size() != 1 || !in.has("b")) unsupported(op);
  const SurfaceBounds bounds = in.has("zero")    ? SurfaceBounds::kZero
                               : in.has("clamp") ? SurfaceBounds::kClamp
                                                 : SurfaceBounds::kTrap;
  V handles = texture_handles(op, address);
  V words = words_of(op, address.elements[0], dimensions(*geometry) + is_layered(*geometry), "words", 0, 4);
  V addresses = frame_scratch("surface", 8 * kLanes);
  b_.CreateStore(konst(0, 64), addresses);
  return call_helper(
      "bsw_surface", b_.getInt32Ty(),
      {warp_, op_mask(op), handles, words, addresses, i32(uint32_t(*geometry)), i32(uint32_t(bounds)), i32(bytes)});
}

void Emitter::op_suld(const Op& op) {
  const unsigned bits = ptx::bits_of(op.in->type()), count = op.in->vector();
  if (bits < 8 || bits > 64 || bits * count > 128) unsupported(op);
  vec_ = true;
  V lanes = surface_addresses(op, op.args.at(1), bits / 8 * count);
  V data = frame_scratch("texels", 4 * 4 * kLanes);
  for (unsigned i = 0; i < count; ++i) {
    b_.CreateStore(konst(0, bits), b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), data, i * (bits / 8) * kLanes));
  }
  call_helper("bsw_load", b_.getVoidTy(),
              {warp_, lanes, frame_scratch("surface", 8 * kLanes), data, i32(bits / 8), i32(count), i32(kGlobal)});
  write_words(op, op.args[0], data, count, bits, false);
}

void Emitter::op_sust(const Op& op) {
  const unsigned bits = ptx::bits_of(op.in->type()), count = op.in->vector();
  if (bits < 8 || bits > 64 || bits * count > 128) unsupported(op);
  vec_ = true;
  const auto values = parts(op.args.at(1));
  if (values.size() != count) unsupported(op, "vector size");
  V lanes = surface_addresses(op, op.args[0], bits / 8 * count);
  V data = frame_scratch("texels", 4 * 4 * kLanes);
  for (unsigned i = 0; i < count; ++i) {
    b_.CreateStore(splat(read(*values[i], bits)),
                   b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), data, i * (bits / 8) * kLanes));
  }
  call_helper("bsw_store", b_.getVoidTy(),
              {warp_, lanes, frame_scratch("surface", 8 * kLanes), data, i32(bits / 8), i32(count), i32(kGlobal)});
}

void Emitter::op_sured(const Op& op) {
  const std::pair<const char*, AtomicOp> operations[] = {{"add", AtomicOp::kAdd},
                                                         {"min", AtomicOp::kMin},
                                                         {"max", AtomicOp::kMax},
                                                         {"and", AtomicOp::kAnd},
                                                         {"or", AtomicOp::kOr}};
  static const std::map<ptx::Type, AtomicType> types = {
      {ptx::Type::kB32, AtomicType::kU32}, {ptx::Type::kU32, AtomicType::kU32}, {ptx::Type::kS32, AtomicType::kS32},
      {ptx::Type::kB64, AtomicType::kU64}, {ptx::Type::kU64, AtomicType::kU64}, {ptx::Type::kS64, AtomicType::kS64}};
  const AtomicOp* kind = named(*op.in, operations);
  const auto type = types.find(op.in->type());
  if (!kind || type == types.end()) unsupported(op);
  const unsigned bits = ptx::bits_of(op.in->type());
  vec_ = true;
  V lanes = surface_addresses(op, op.args.at(0), bits / 8);
  V a = frame_scratch("in0", 8 * kLanes), c = frame_scratch("in1", 8 * kLanes), out = frame_scratch("out", 8 * kLanes);
  b_.CreateStore(splat(read(*parts(op.args.at(1)).at(0), bits)), a);
  call_helper("bsw_atomic", b_.getVoidTy(),
              {warp_, lanes, frame_scratch("surface", 8 * kLanes), a, c, out, i32(kGlobal), i32(uint32_t(*kind)),
               i32(uint32_t(type->second))});
}

}  // namespace bandsaw::soft
