// More operations on random parts of a World's buffers: by calls that are not captured.
#pragma once

#include <cooperative_groups.h>

#include <cstdlib>

#include "random_operations.cuh"

constexpr unsigned kSymbolWords = 64, kSymbolSlots = 256;
__device__ unsigned symbol_words[kSymbolSlots][kSymbolWords];

__global__ void add_symbol(unsigned* to, size_t count, unsigned slot) {
  for (size_t i = threadIdx.x; i < count; i += blockDim.x) to[i] += symbol_words[slot][i % kSymbolWords];
}

__global__ void add_texels(unsigned* to, cudaTextureObject_t from, unsigned first, unsigned count) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i] += tex1Dfetch<unsigned>(from, int(first + i));
}

// Each word is multiplied by one thread, and another adds to it.
__global__ void affine_in_two_steps(unsigned* to, unsigned long long count, unsigned factor, unsigned summand) {
  const size_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  for (size_t i = first; i < count; i += step) to[i] *= factor;
  cooperative_groups::this_grid().sync();
  for (size_t i = first; i < count; i += step) to[count - 1 - i] += summand;
}

static const char* kLibrary = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry twice(.param .u64 to)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [to];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  add.u32 %r2, %r2, %r2;
  st.global.u32 [%rd3], %r2;
  ret;
}
)";

class Extras : public Operations {
 public:
  explicit Extras(unsigned seed) : Operations(seed) {
    static std::atomic<unsigned> players{0};
    symbol_slots_ = players++ * kStreams % (kSymbolSlots - kStreams + 1);
  }

 protected:
  static constexpr unsigned kExtras = 17;

  void extra(unsigned what) {
    if (what == 0) return copy_and_wait();
    if (what == 1) return fill_and_wait();
    if (what == 2) return through_symbol();
    if (what == 3) return through_registered_memory();
    if (what == 4) return through_texture();
    if (what == 5) return through_own_pool();
    if (what == 6) return measure();
    if (what == 7) return move_managed();
    if (what == 8) return launch_together();
    if (what == 9) return copy_box();
    if (what == 10) return through_pitched_memory();
    if (what == 11) return call_back();
    if (what == 12) return launch_with_attributes();
    if (what == 13) return launch_made_graph();
    if (what == 14) return write_words();
    if (what == 15) return ask();
    if (what == 16) use_library();
  }

 private:
  Part part_here(int stream) { return any_part(stream, of_device(device_of(stream))); }
  std::pair<Part, Part> two_parts_here(int stream) { return two_parts(stream, of_device(device_of(stream))); }

  // By calls that wait, on the legacy stream.
  void copy_and_wait() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    CHECK(cudaStreamSynchronize(on(stream)));
    Words words = any_words(part.count);
    if (up_to(2)) {
      CHECK(cudaMemcpy(part.at(), words.data(), part.bytes(), cudaMemcpyDefault));
      CHECK(cudaStreamSynchronize(cudaStreamLegacy));
      std::copy(words.begin(), words.end(), part.model());
    } else {
      CHECK(cudaMemcpy(words.data(), part.at(), part.bytes(), cudaMemcpyDefault));
      expect_equal(words.data(), part.model(), part.count);
    }
  }

  void fill_and_wait() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    if (part.buffer->kind == Kind::kMapped) return;  // as fill()
    CHECK(cudaStreamSynchronize(on(stream)));
    const unsigned byte = up_to(256);
    CHECK(cudaMemset(part.at(), static_cast<int>(byte), part.bytes()));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    std::fill_n(part.model(), part.count, byte * 0x01010101u);
  }

  void through_symbol() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    const unsigned slot = symbol_slots_ + static_cast<unsigned>(stream);
    Words words = any_words(kSymbolWords);
    CHECK(cudaMemcpyToSymbolAsync(symbol_words, words.data(), sizeof symbol_words[0], slot * sizeof symbol_words[0],
                                  cudaMemcpyHostToDevice, on(stream)));
    add_symbol<<<1, 128, 0, streams_[stream]>>>(part.at(), part.count, slot);
    CHECK(cudaGetLastError());
    for (size_t i = 0; i < part.count; ++i) part.model()[i] += words[i % kSymbolWords];
    std::fill(words.begin(), words.end(), 0xdeadu);
  }

  void through_registered_memory() {
    const int stream = any_stream();
    const auto [from, to] = two_parts(stream);
    const size_t bytes = (to.bytes() + 4095) / 4096 * 4096;
    auto* const host = static_cast<unsigned*>(std::aligned_alloc(4096, bytes));
    CHECK(cudaHostRegister(host, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
    CHECK(cudaMemcpyAsync(host, from.at(), to.bytes(), cudaMemcpyDefault, on(stream)));
    unsigned* seen;
    CHECK(cudaHostGetDevicePointer(&seen, host, 0));
    affine<<<2, 64, 0, streams_[stream]>>>(seen, to.count, 9, 2);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(to.at(), host, to.bytes(), cudaMemcpyDefault, streams_[stream]));
    for (size_t i = 0; i < to.count; ++i) to.model()[i] = from.model()[i] * 9 + 2;
    CHECK(cudaStreamSynchronize(streams_[stream]));
    expect_equal(host, to.model(), to.count);
    CHECK(cudaHostUnregister(host));
    std::free(host);
  }

  void through_texture() {
    const int stream = any_stream();
    const auto [from, to] = two_parts_here(stream);
    if (from.buffer->kind != Kind::kPlain) return;
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = from.buffer->at;
    resource.res.linear.desc = cudaCreateChannelDesc<unsigned>();
    resource.res.linear.sizeInBytes = from.buffer->model.size() * sizeof(unsigned);
    cudaTextureDesc sampling{};
    sampling.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    on(stream);
    CHECK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    add_texels<<<1, 96, 0, streams_[stream]>>>(to.at(), texture, static_cast<unsigned>(from.first),
                                               static_cast<unsigned>(to.count));
    CHECK(cudaGetLastError());
    for (size_t i = 0; i < to.count; ++i) to.model()[i] += from.model()[i];
    CHECK(cudaStreamSynchronize(streams_[stream]));
    CHECK(cudaDestroyTextureObject(texture));
  }

  // The pool is destroyed while work on the stream still uses its memory.
  void through_own_pool() {
    const int stream = any_stream();
    const auto [from, to] = two_parts_here(stream);
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, device_of(stream)};
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    unsigned* memory;
    CHECK(cudaMallocFromPoolAsync(&memory, to.bytes(), pool, on(stream)));
    CHECK(cudaMemcpyAsync(memory, from.at(), to.bytes(), cudaMemcpyDefault, streams_[stream]));
    affine<<<2, 64, 0, streams_[stream]>>>(memory, to.count, 7, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(to.at(), memory, to.bytes(), cudaMemcpyDefault, streams_[stream]));
    for (size_t i = 0; i < to.count; ++i) to.model()[i] = from.model()[i] * 7 + 1;
    CHECK(cudaFreeAsync(memory, streams_[stream]));
    CHECK(cudaMemPoolDestroy(pool));
  }

  void measure() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    cudaEvent_t begin, end;
    on(stream);
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
    CHECK(cudaEventRecord(begin, streams_[stream]));
    run(kernel(part, 11, 3), streams_[stream]);
    CHECK(cudaEventRecord(end, streams_[stream]));
    CHECK(cudaEventSynchronize(end));
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    EXPECT(milliseconds >= 0);
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
  }

  void move_managed() {
    const int stream = any_stream();
    Buffer& buffer = any_buffer();
    if (buffer.kind != Kind::kManaged || !concurrent_managed_) return;
    take(buffer, stream);
    const cudaMemLocation device = {cudaMemLocationTypeDevice, device_of(stream)};
    const cudaMemLocation host = {cudaMemLocationTypeHost, 0};
    const size_t bytes = buffer.model.size() * sizeof(unsigned);
    const unsigned what = up_to(4);
    on(stream);
    if (what < 2) CHECK(cudaMemPrefetchAsync(buffer.at, bytes, what ? device : host, 0, streams_[stream]));
    if (what == 2) CHECK(cudaMemAdvise(buffer.at, bytes, cudaMemAdviseSetReadMostly, device));
    if (what == 3) CHECK(cudaMemAdvise(buffer.at, bytes, cudaMemAdviseUnsetReadMostly, device));
  }

  void launch_together() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    unsigned* at = part.at();
    unsigned long long count = part.count;
    unsigned factor = static_cast<unsigned>(random_()), summand = up_to(1000);
    void* arguments[] = {&at, &count, &factor, &summand};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(affine_in_two_steps), dim3(1 + up_to(4)), dim3(64),
                                      arguments, 0, on(stream)));
    model_affine(part, factor, summand);
  }

  void copy_box() {
    const int stream = any_stream();
    const auto [from, to] = two_parts(stream);
    const size_t pitch = 1 + up_to(40), width = 1 + up_to(pitch), rows = 1 + up_to(6), height = 1 + up_to(rows);
    const size_t depth = to.count / (pitch * rows);
    if (depth == 0) return;
    cudaMemcpy3DParms box{};
    box.srcPtr = make_cudaPitchedPtr(from.at(), 4 * pitch, width, rows);
    box.dstPtr = make_cudaPitchedPtr(to.at(), 4 * pitch, width, rows);
    box.extent = make_cudaExtent(4 * width, height, depth);
    box.kind = cudaMemcpyDefault;
    CHECK(cudaMemcpy3DAsync(&box, on(stream)));
    for (size_t z = 0; z < depth; ++z)
      for (size_t y = 0; y < height; ++y)
        std::copy_n(from.model() + (z * rows + y) * pitch, width, to.model() + (z * rows + y) * pitch);
  }

  // It is freed while it is used.
  void through_pitched_memory() {
    const int stream = any_stream();
    const auto [from, to] = two_parts_here(stream);
    const size_t width = 1 + up_to(50), rows = to.count / width;
    if (rows == 0) return;
    unsigned* memory;
    size_t pitch;
    on(stream);
    CHECK(cudaMallocPitch(&memory, &pitch, 4 * width, rows));
    const cudaStream_t queue = streams_[stream];
    CHECK(cudaMemcpy2DAsync(memory, pitch, from.at(), 4 * width, 4 * width, rows, cudaMemcpyDefault, queue));
    CHECK(cudaMemcpy2DAsync(to.at(), 4 * width, memory, pitch, 4 * width, rows, cudaMemcpyDefault, queue));
    std::copy_n(from.model(), width * rows, to.model());
    CHECK(cudaFree(memory));
  }

  static void CUDART_CB count_callback(cudaStream_t, cudaError_t status, void* calls) {
    EXPECT(status == cudaSuccess);
    count_call(calls);
  }
  void call_back() {
    const int stream = any_stream();
    expect_call();
    CHECK(cudaStreamAddCallback(on(stream), count_callback, calls(), 0));
    CHECK(cudaStreamSynchronize(streams_[stream]));  // NVIDIA's driver crashes if the stream is destroyed before
  }

  // With attributes that change nothing of what it does.
  void launch_with_attributes() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    cudaLaunchAttribute attribute{};
    const bool alone = up_to(2);
    attribute.id = alone ? cudaLaunchAttributeCooperative : cudaLaunchAttributeMemSyncDomain;
    if (alone) attribute.val.cooperative = 1;
    if (!alone) attribute.val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1 + up_to(4));
    config.blockDim = dim3(32);
    config.stream = on(stream);
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, affine, part.at(), part.count, 13u, 5u));
    model_affine(part, 13, 5);
  }

  // A fill, a kernel behind it, and a copy of both to another buffer; one of them may be left out.
  void launch_made_graph() {
    const int stream = any_stream();
    const auto [from, to] = two_parts_here(stream);
    if (from.buffer->kind == Kind::kMapped) return;  // graphs have no fills of host memory
    cudaGraph_t graph, clone;
    cudaGraphNode_t fill, work, copy;
    on(stream);
    CHECK(cudaGraphCreate(&graph, 0));
    const unsigned value = static_cast<unsigned>(random_());
    cudaMemsetParams bytes{};
    bytes.dst = from.at();
    bytes.value = value;
    bytes.elementSize = 4;
    bytes.width = to.count;
    bytes.height = 1;
    CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &bytes));
    cudaKernelNodeParams kernel{};
    unsigned *at = from.at(), factor = 3, summand = 4;
    size_t count = to.count;
    void* arguments[] = {&at, &count, &factor, &summand};
    kernel.func = reinterpret_cast<void*>(affine);
    kernel.gridDim = kernel.blockDim = dim3(8);
    kernel.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&work, graph, &fill, 1, &kernel));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &work, 1, to.at(), from.at(), to.bytes(), cudaMemcpyDefault));
    CHECK(cudaGraphClone(&clone, graph));
    const bool of_clone = up_to(2) == 0, without_work = up_to(3) == 0;
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, of_clone ? clone : graph, 0));
    if (of_clone) CHECK(cudaGraphNodeFindInClone(&work, work, clone));
    if (without_work) CHECK(cudaGraphNodeSetEnabled(exec, work, 0));
    CHECK(cudaGraphLaunch(exec, streams_[stream]));
    std::fill_n(from.model(), to.count, without_work ? value : value * factor + summand);
    std::copy_n(from.model(), to.count, to.model());
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphDestroy(graph));
  }

  void write_words() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    if (part.buffer->kind != Kind::kPlain && part.buffer->kind != Kind::kMapped)
      return;  // streams may not write words there
    CUstreamBatchMemOpParams operations[3] = {};
    const size_t count = std::min<size_t>(part.count, 3);
    for (size_t i = 0; i < count; ++i) {
      operations[i].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      operations[i].writeValue.address = reinterpret_cast<CUdeviceptr>(part.at() + i);
      operations[i].writeValue.value = part.model()[i] = static_cast<unsigned>(random_());
    }
    CHECK_DRIVER(cuStreamBatchMemOp(on(stream), static_cast<unsigned>(count), operations, 0));
  }

  // Changes nothing.
  void ask() {
    const int stream = any_stream();
    const Buffer& buffer = any_buffer();
    cudaPointerAttributes attributes;
    on(stream);
    CHECK(cudaPointerGetAttributes(&attributes, buffer.at));
    const auto wanted = buffer.kind == Kind::kManaged  ? cudaMemoryTypeManaged
                        : buffer.kind == Kind::kMapped ? cudaMemoryTypeHost
                                                       : cudaMemoryTypeDevice;
    EXPECT_EQ(attributes.type, wanted);
    size_t free, total;
    CHECK(cudaMemGetInfo(&free, &total));
    EXPECT(free <= total);
    int blocks;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, affine, 64, 0));
    EXPECT(blocks > 0);
    cudaFuncAttributes function;
    CHECK(cudaFuncGetAttributes(&function, affine));
    unsigned flags;
    CHECK(cudaStreamGetFlags(streams_[stream], &flags));
  }

  void use_library() {
    const int stream = any_stream();
    Part part = any_part(stream);
    part.count = std::min<size_t>(part.count, 256);
    CUlibrary library;
    CUkernel kernel;
    on(stream);
    CHECK_DRIVER(cuLibraryLoadData(&library, kLibrary, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_DRIVER(cuLibraryGetKernel(&kernel, library, "twice"));
    unsigned* at = part.at();
    void* arguments[] = {&at};
    CHECK_DRIVER(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, static_cast<unsigned>(part.count), 1, 1,
                                0, streams_[stream], arguments, nullptr));
    for (size_t i = 0; i < part.count; ++i) part.model()[i] *= 2;
    CHECK(cudaStreamSynchronize(streams_[stream]));
    CHECK_DRIVER(cuLibraryUnload(library));
  }

  unsigned symbol_slots_;
};
