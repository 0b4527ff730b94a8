// What a guest process makes on a Device and names by handles.
//
// Ownership: shared_ptr; an object in use by queued work lives until that work is done. Each device has its own kinds.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "vgpu-sched/engine.h"

namespace bandsaw {

class Object {
 public:
  virtual ~Object() = default;
};

class Context : public Object {};
class Kernel : public Object {};    // of a library, in no context
class Function : public Object {};  // in a context
class Event : public Object {};
class Node : public Object {};
class Exec : public Object {
 public:
  // What a launch of it puts on each engine: nodes (launches, fills, copies), and the bytes of its copies. The runner
  // sets it; any thread.
  std::array<std::atomic<uint64_t>, kEngines> nodes{}, bytes{};
  std::atomic<uint64_t> changes{0};  // since it was made: it may take another time then. As the line before
};
class Stream : public Object {};
class Pool : public Object {};
class Graph : public Object {};
class Library : public Object {};
class Module : public Object {};
class Array : public Object {};
class Mipmap : public Object {};  // a mipmapped array
class Texture : public Object {};
class Surface : public Object {};
class Memory : public Object {  // physical memory, mapped or not
 public:
  std::atomic<bool> revoked{false};    // lent by somebody who has it back: it is not mapped any more
  std::atomic<bool> borrowed{false};   // lent by somebody: it is not handed on. Before it is mapped, as the next
  std::atomic<bool> read_only{false};  // may not be mapped for writing
};
class Linker : public Object {  // a CUlinkState
 public:
  std::mutex mutex;              // held while it is used
  std::vector<std::byte> image;  // what was linked
  uint64_t input_bytes = 0;
};

using ContextRef = std::shared_ptr<Context>;
using StreamRef = std::shared_ptr<Stream>;
using EventRef = std::shared_ptr<Event>;
using NodeRef = std::shared_ptr<Node>;
using GraphRef = std::shared_ptr<Graph>;
using ExecRef = std::shared_ptr<Exec>;
using PoolRef = std::shared_ptr<Pool>;
using LibraryRef = std::shared_ptr<Library>;
using ModuleRef = std::shared_ptr<Module>;
using KernelRef = std::shared_ptr<Kernel>;
using FunctionRef = std::shared_ptr<Function>;
using ArrayRef = std::shared_ptr<Array>;
using MipmapRef = std::shared_ptr<Mipmap>;
using TextureRef = std::shared_ptr<Texture>;
using SurfaceRef = std::shared_ptr<Surface>;
using MemoryRef = std::shared_ptr<Memory>;
using LinkerRef = std::shared_ptr<Linker>;

}  // namespace bandsaw
