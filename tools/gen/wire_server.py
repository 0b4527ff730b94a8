"""wire_server.{h,cc} and wire_refusing.h: the host's side, from a checked record to a typed handler."""

REF_TYPES = {"context": "Context", "module": "Module", "library": "Library", "kernel": "Kernel",
             "function": "Function", "stream": "Stream", "event": "Event", "graph": "Graph", "node": "Node",
             "exec": "Exec", "pool": "Pool", "array": "Array", "mipmap": "Mipmap", "texture": "Texture",
             "surface": "Surface", "memory": "Memory", "linker": "Linker"}


def in_parameter(argument):
    if argument.is_handle:
        return f"const Resolved<{REF_TYPES[argument.type]}>& {argument.name}"
    if argument.is_struct:
        return f"const {argument.struct}& {argument.name}"
    if argument.type == "bytes":
        return f"std::span<const std::byte> {argument.name}"
    if argument.type == "str":
        return f"std::string_view {argument.name}"
    return f"{argument.c_type} {argument.name}"


def out_parameter(argument):
    return f"std::string* {argument.name}" if argument.is_tail else f"{argument.c_type}* {argument.name}"


def answer_parameter(argument):
    if argument.is_struct:
        return f"const {argument.struct}& {argument.name}"
    return f"std::string_view {argument.name}" if argument.is_tail else f"{argument.c_type} {argument.name}"


def later_type(row):
    return f"{row.camel}Answer" if row.outs else "Answer"


def handler(row):
    parameters = ["const CallContext& call"] + [in_parameter(a) for a in row.ins]
    if row.reply == "later":
        return f"  virtual void {row.name}({', '.join([*parameters, later_type(row) + ' answer'])}) = 0;"
    parameters += [out_parameter(a) for a in row.outs]
    return f"  virtual CUresult {row.name}({', '.join(parameters)}) = 0;"


def set_fields(arguments, indent, access):
    lines = []
    for a in arguments:
        value = f"static_cast<uint32_t>({a.name}.size())" if a.is_tail else a.name
        lines.append(f"{indent}{access}{a.field} = {value};")
    return lines


def answer_class(row):
    """How a handler with reply = "later" gives its outputs."""
    if row.reply != "later" or not row.outs:
        return ""
    tail = f"as_bytes({row.out_tail.name})" if row.out_tail else "{}"
    body = "\n".join(set_fields(row.outs, "    ", "reply."))
    return f"""class {row.camel}Answer : public Answer {{
 public:
  using Answer::Answer;
  using Answer::operator();
  void operator()(CUresult outcome, {', '.join(answer_parameter(a) for a in row.outs)}) const {{
    {row.camel}Reply reply{{}};
{body}
    send(outcome, &reply, sizeof(reply), {tail});
  }}
}};
"""


def resolve(argument):
    kind = argument.type
    type_name = REF_TYPES[kind]
    error = "CUDA_ERROR_INVALID_CONTEXT" if kind == "context" else "CUDA_ERROR_INVALID_HANDLE"
    if kind == "stream" and argument.optional:
        find = f"find_stream(handles, call, args.{argument.name}, &{argument.name})"
    else:
        optional = "true" if argument.optional else "false"
        find = (f"find(handles, HandleKind::k{kind.capitalize()}, args.{argument.name}, {optional}, "
                f"&{argument.name})")
    return [f"  Resolved<{type_name}> {argument.name};", f"  if (!{find}) return refuse(call, {error});"]


def argument_value(argument):
    if argument.is_handle:
        return argument.name
    if argument.type == "bytes":
        return "record.tail"
    if argument.type == "str":
        return "as_text(record.tail)"
    return f"args.{argument.name}"


def call_handler(row):
    values = ["call"] + [argument_value(a) for a in row.ins]
    if row.reply == "later":
        answer = f"{later_type(row)}(call.sink, call.seq)"
        return [f"  handlers.{row.name}({', '.join([*values, answer])});", "  return {Outcome::kLater, CUDA_SUCCESS};"]
    lines = []
    if row.outs:
        lines.append(f"  {row.camel}Reply reply{{}};")
        if row.out_tail:
            lines.append("  std::string tail;")
        values += ["&tail" if a.is_tail else f"&reply.{a.name}" for a in row.outs]
    lines.append(f"  const CUresult result = handlers.{row.name}({', '.join(values)});")
    if not row.sync:
        return [*lines, "  return {Outcome::kDone, result};"]
    # What the call released is gone before the guest hears of it: memory that it frees is there for its next call.
    lines += [f"  {a.name}.object.reset();" for a in row.ins if a.is_handle]
    if row.out_tail:
        lines.append(f"  reply.{row.out_tail.field} = static_cast<uint32_t>(tail.size());")
    fixed = "&reply, sizeof(reply)" if row.outs else "nullptr, 0"
    return [*lines, f"  return answer(call, result, {fixed}, {'tail' if row.out_tail else '{}'});"]


def decoder(row):
    lines = [f"Dispatched do_{row.name}(const CheckedRecord& record, const CallContext& call, HandleSource& handles,",
             "    WireHandlers& handlers) {"]
    if any(not a.is_tail for a in row.ins):
        lines.append(f"  {row.camel}Args args;\n  std::memcpy(&args, record.args, sizeof(args));")
    for argument in row.ins:
        if argument.is_handle:
            lines += resolve(argument)
    return "\n".join(lines + call_handler(row)) + "\n}\n"


HEADER = """// Generated by tools/gen from guest-driver/uapi/calls/wire.toml.
//
// From the private copy of a record to a typed handler: check() looks at sizes and opcode and nothing else,
// dispatch() resolves handles and calls the handler. Neither touches guest memory, and neither trusts a byte of
// the record. Safe from several threads at once as far as the handlers and the HandleSource are.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "backend/device/device.h"
#include "guest-driver/uapi/wire.h"

namespace bandsaw::wire {

// A handle argument and what it names. With "?" both may be 0 and null.
template <typename T>
struct Resolved {
  uint64_t handle = 0;  // as the guest gave it; for streams it may be 0, 1 or 2
  std::shared_ptr<T> object;
  explicit operator bool() const { return object != nullptr; }
  operator const std::shared_ptr<T>&() const { return object; }  // NOLINT: conversion intended
};

// Where the reply to a synchronous record is written: one per ring. reply() may be called from any thread.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  // `fixed` and `tail` together are at most VGPU_RING_REPLY_BYTES long.
  virtual void reply(uint64_t seq, CUresult result, std::span<const std::byte> fixed,
                     std::span<const std::byte> tail) = 0;
};

// Who asks. The caller of dispatch() sets ring and sink; dispatch() sets the rest.
struct CallContext {
  uint32_t ring = 0;
  std::shared_ptr<ReplySink> sink;
  uint64_t seq = 0;
  const CallInfo* info = nullptr;
  Resolved<Context> context;  // null when the record names none or one that is gone
};

// The guest process's table of objects.
class HandleSource {
 public:
  virtual ~HandleSource() = default;
  // The living object with this handle if it is of this kind, else null.
  virtual std::shared_ptr<Object> find(HandleKind kind, uint64_t handle) = 0;
  // As find(), and 0, VGPU_STREAM_LEGACY and VGPU_STREAM_PER_THREAD name streams of call.context and call.ring.
  virtual StreamRef find_stream(const CallContext& call, uint64_t handle) = 0;
};

// Answers a record later, from any thread, once. Copyable, so that it can serve as a device's Done.
class Answer {
 public:
  Answer(std::shared_ptr<ReplySink> sink, uint64_t seq) : sink_(std::move(sink)), seq_(seq) {}
  void operator()(CUresult result) const { sink_->reply(seq_, result, {}, {}); }

 protected:
  static std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }
  void send(CUresult result, const void* fixed, size_t bytes, std::span<const std::byte> tail) const {
    sink_->reply(seq_, result, {static_cast<const std::byte*>(fixed), bytes}, tail);
  }

 private:
  std::shared_ptr<ReplySink> sink_;
  uint64_t seq_ = 0;
};

@ANSWERS@
// One function per wire call. Outputs count only when the result is CUDA_SUCCESS, but are sent in any case (logs).
// Output handles are minted by the handler.
class WireHandlers {
 public:
  virtual ~WireHandlers() = default;
@HANDLERS@
};

// A record whose opcode and sizes are right. Points into the record.
struct CheckedRecord {
  const CallInfo* info = nullptr;
  Opcode opcode{};
  uint64_t seq = 0;
  uint64_t context = 0;
  const std::byte* args = nullptr;
  std::span<const std::byte> tail;
};

// The arguments of a record of this call; nothing for a record of another one.
template <typename Args>
std::optional<Args> read_args(const CheckedRecord& record) {
  if (record.opcode != Args::kOpcode) return std::nullopt;
  Args args;
  std::memcpy(&args, record.args, sizeof(args));
  return args;
}

// The handle at one of the places that CallInfo names; 0 where it names none.
inline uint64_t handle_at(const CheckedRecord& record, int32_t offset) {
  uint64_t handle = 0;
  if (offset >= 0) std::memcpy(&handle, record.args + offset, sizeof(handle));
  return handle;
}

// The done word that the record names; token 0 for none.
inline vgpu_done done_of(const CheckedRecord& record) {
  vgpu_done done{};
  if (record.info->done >= 0) std::memcpy(&done, record.args + record.info->done, sizeof(done));
  return done;
}

// Returns nullptr, or what is wrong with the record: a static text. A PAD record is not accepted here.
const char* check(std::span<const std::byte> record, CheckedRecord* checked);

enum class Outcome { kDone, kLater };

struct Dispatched {
  Outcome outcome = Outcome::kDone;
  CUresult result = CUDA_SUCCESS;  // kDone: for asynchronous calls an error to make sticky; already sent otherwise
};

Dispatched dispatch(const CheckedRecord& record, CallContext& call, HandleSource& handles, WireHandlers& handlers);

}  // namespace bandsaw::wire
"""

SOURCE = """// Generated by tools/gen from guest-driver/uapi/calls/wire.toml.
#include "guest-driver/uapi/wire_server.h"

#include <cstring>

namespace bandsaw::wire {
namespace {

template <typename T>
bool find(HandleSource& handles, HandleKind kind, uint64_t handle, bool optional, Resolved<T>* resolved) {
  resolved->handle = handle;
  if (handle == 0) return optional;
  if (kind_of(handle) != kind) return false;
  resolved->object = std::static_pointer_cast<T>(handles.find(kind, handle));
  return resolved->object != nullptr;
}

bool find_stream(HandleSource& handles, const CallContext& call, uint64_t handle, Resolved<Stream>* resolved) {
  resolved->handle = handle;
  if (handle > VGPU_STREAM_PER_THREAD && kind_of(handle) != HandleKind::kStream) return false;
  resolved->object = handles.find_stream(call, handle);
  return resolved->object != nullptr;
}

Dispatched answer(const CallContext& call, CUresult result, const void* fixed, size_t bytes, std::string_view tail) {
  if (bytes + tail.size() > VGPU_RING_REPLY_BYTES) {
    result = CUDA_ERROR_NOT_SUPPORTED;
    bytes = 0;
    tail = {};
  }
  call.sink->reply(call.seq, result, {static_cast<const std::byte*>(fixed), bytes}, std::as_bytes(std::span(tail)));
  return {Outcome::kDone, result};
}

Dispatched refuse(const CallContext& call, CUresult error) {
  if (call.info->mode == Mode::kSync) return answer(call, error, nullptr, 0, {});
  return {Outcome::kDone, error};
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

@DECODERS@
using Decoder = Dispatched (*)(const CheckedRecord&, const CallContext&, HandleSource&, WireHandlers&);

constexpr Decoder kDecoders[kOpcodes] = {
    nullptr,
@TABLE@
};

}  // namespace

const char* check(std::span<const std::byte> record, CheckedRecord* checked) {
  vgpu_record header;
  if (record.size() < sizeof(header)) return "record shorter than its header";
  if (record.size() > VGPU_RECORD_MAX_BYTES) return "record too long";
  std::memcpy(&header, record.data(), sizeof(header));
  if (header.bytes != record.size()) return "record length differs from what it says";
  if (header.opcode == VGPU_OPCODE_PAD || header.opcode >= kOpcodes) return "unknown opcode";
  const CallInfo& info = kCalls[header.opcode];
  const size_t fixed = sizeof(header) + info.args_bytes;
  if (record.size() < fixed) return "arguments cut off";
  uint32_t tail = 0;
  if (info.tail_length >= 0) std::memcpy(&tail, record.data() + sizeof(header) + info.tail_length, sizeof(tail));
  constexpr uint64_t kAlign = VGPU_RECORD_ALIGN;
  if ((fixed + uint64_t{tail} + kAlign - 1) / kAlign * kAlign != record.size()) return "length of the data is wrong";
  *checked = {&info,          static_cast<Opcode>(header.opcode),    header.seq, header.context,
              record.data() + sizeof(header), record.subspan(fixed, tail)};
  if (info.tail_text && tail && std::memchr(checked->tail.data(), 0, tail)) return "NUL inside a string";
  return nullptr;
}

Dispatched dispatch(const CheckedRecord& record, CallContext& call, HandleSource& handles, WireHandlers& handlers) {
  call.seq = record.seq;
  call.info = record.info;
  call.context = {};
  if (!find(handles, HandleKind::kContext, record.context, true, &call.context)) call.context.handle = 0;
  if (record.info->needs_context && !call.context) return refuse(call, CUDA_ERROR_INVALID_CONTEXT);
  return kDecoders[static_cast<uint32_t>(record.opcode)](record, call, handles, handlers);
}

}  // namespace bandsaw::wire
"""


def refusing(row):
    head = handler(row).replace("  virtual ", "  ").replace(" = 0;", " override")
    body = "answer(CUDA_ERROR_NOT_SUPPORTED);" if row.reply == "later" else "return CUDA_ERROR_NOT_SUPPORTED;"
    return f"{head} {{ {body} }}"


REFUSING = """// Generated by tools/gen from guest-driver/uapi/calls/wire.toml.
// Handlers that refuse everything: what tests and fuzzers of the decoders begin with.
#pragma once

#include "guest-driver/uapi/wire_server.h"

namespace bandsaw::wire {

class RefusingHandlers : public WireHandlers {
 public:
@HANDLERS@
};

}  // namespace bandsaw::wire
"""


def generate(spec):
    header = HEADER.replace("@ANSWERS@", "\n".join(filter(None, map(answer_class, spec.rows))))
    header = header.replace("@HANDLERS@", "\n".join(map(handler, spec.rows)))
    source = SOURCE.replace("@DECODERS@", "\n".join(map(decoder, spec.rows)))
    source = source.replace("@TABLE@", "\n".join(f"    do_{row.name}," for row in spec.rows))
    return [header, source, REFUSING.replace("@HANDLERS@", "\n".join(map(refusing, spec.rows)))]
