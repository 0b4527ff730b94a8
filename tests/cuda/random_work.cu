// nvcc: -lcuda -rdc=true -lcudadevrt
// arguments: 1 3 400
// Random work on buffers in all kinds of memory, held against a model on the host: one thread, then three. Arguments:
// the first seed, how many seeds, operations of each thread.
#include <thread>

#include "random_extras.cuh"

__global__ void begin_loop(cudaGraphConditionalHandle handle, unsigned* left, unsigned rounds) {
  *left = rounds;
  cudaGraphSetConditional(handle, rounds > 0);
}

__global__ void end_round(cudaGraphConditionalHandle handle, unsigned* left) {
  cudaGraphSetConditional(handle, --*left > 0);
}

static const char* kModule = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 summand;
.visible .entry add(.param .u64 to)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [to];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  ld.global.u32 %r3, [summand];
  add.u32 %r2, %r2, %r3;
  st.global.u32 [%rd3], %r2;
  ret;
}
)";

class Player : public Extras {
 public:
  Player(unsigned seed, bool alone) : Extras(seed), alone_(alone) {
    CHECK(cudaHostAlloc(&rounds_left_, 2 * kStreams * sizeof(unsigned), cudaHostAllocMapped));
    std::fill_n(rounds_left_, 2 * kStreams, 0);
    handed_over_ = rounds_left_ + kStreams;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    for (int i = 0; i < kStreams; ++i) {
      on(i);
      CHECK(cudaMallocArray(&arrays_[i], &format, kArrayWidth, kArrayHeight));
    }
  }

  void step() {
    if (needs_pinned()) catch_up();
    act(up_to(22 + kExtras));
    finish_use();
  }

  void finish() {
    catch_up();
    Operations::finish();
    for (const cudaArray_t array : arrays_) CHECK(cudaFreeArray(array));
    CHECK(cudaFreeHost(rounds_left_));
  }

 private:
  static constexpr size_t kArrayWidth = 37, kArrayHeight = 11;

  void act(unsigned what) {
    if (what == 0) return upload_pageable();
    if (what == 1) return download_pageable();
    if (what == 2) return replace_buffer();
    if (what == 3) return replace_stream();
    if (what == 4) return touch_managed();
    if (what == 5) return use_module();
    if (what == 6) return hand_over_by_word();
    if (what == 7) return through_array();
    if (what == 8) return launch_loop();
    if (what == 9) return update_graph();
    if (what == 10) return synchronize();
    if (what <= 12) return capture();
    if (what < 13 + kExtras) return extra(what - 13);
    const int stream = any_stream();
    run(any_operation(stream), on(stream));
  }

  // All that was begun is over; what it needed is free again.
  void catch_up() {
    for (int i = 0; i < kStreams; ++i) CHECK(cudaStreamSynchronize(on(i)));
    operations_ended();
    for (const cudaGraphExec_t graph : graphs_) CHECK(cudaGraphExecDestroy(graph));
    graphs_.clear();
  }

  // A graph of a few operations, on one stream or on two beside each other, launched a few times.
  void capture() {
    const int stream = any_stream_apart(), side = next_apart(stream);
    const bool fork = devices_ == 1 && up_to(2);
    const Range here = of_device(device_of(stream));  // a graph is of one device
    std::vector<Operation> main, beside;
    for (unsigned i = up_to(4); i < 4; ++i) main.push_back(any_operation(stream, fork ? Range{0, 4} : here));
    for (unsigned i = up_to(3); fork && i < 3; ++i) beside.push_back(any_operation(stream, {4, kBuffers}));

    CHECK(cudaStreamBeginCapture(on(stream), cudaStreamCaptureModeThreadLocal));
    if (fork) follow(streams_[side], streams_[stream]);
    for (const Operation& operation : main) operation.issue(streams_[stream]);
    for (const Operation& operation : beside) operation.issue(streams_[side]);
    if (fork) follow(streams_[stream], streams_[side]);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(streams_[stream], &graph));
    const cudaGraphExec_t exec = instantiate(graph);
    for (unsigned times = up_to(4); times > 0; --times) {
      for (const auto* operations : {&main, &beside})
        for (const Operation& operation : *operations) operation.model();
      CHECK(cudaGraphLaunch(exec, streams_[stream]));
    }
  }
  static int next_apart(int stream) { return kApartFirst + (stream - kApartFirst + 1) % (kStreams - kApartFirst); }
  // Both are of the thread's device.
  static void follow(cudaStream_t later, cudaStream_t earlier) {
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, earlier));
    CHECK(cudaStreamWaitEvent(later, event, 0));
    CHECK(cudaEventDestroy(event));
  }
  // It lives until all is over.
  cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    graphs_.push_back(exec);
    return exec;
  }

  static cudaGraphNode_t add_kernel(cudaGraph_t graph, const void* function, void** arguments, cudaGraphNode_t after) {
    cudaKernelNodeParams params{};
    params.func = const_cast<void*>(function);
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddKernelNode(&node, graph, &after, after ? 1 : 0, &params));
    return node;
  }

  // A loop whose rounds are counted on the device.
  void launch_loop() {
    const int stream = any_stream();
    Part part = any_part(stream);
    part.count = std::min<size_t>(part.count, 64);
    unsigned rounds = up_to(6), factor = static_cast<unsigned>(random_()), summand = 7, *left = rounds_left_ + stream;
    cudaGraph_t graph;
    cudaGraphConditionalHandle handle;
    on(stream);
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
    void* begin[] = {&handle, &left, &rounds};
    const cudaGraphNode_t first = add_kernel(graph, reinterpret_cast<void*>(begin_loop), begin, nullptr);
    cudaGraphNodeParams loop = {cudaGraphNodeTypeConditional};
    loop.conditional.handle = handle;
    loop.conditional.type = cudaGraphCondTypeWhile;
    loop.conditional.size = 1;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, &first, nullptr, 1, &loop));
    const cudaGraph_t body = loop.conditional.phGraph_out[0];
    unsigned* at = part.at();
    void* arguments[] = {&at, &part.count, &factor, &summand};
    const cudaGraphNode_t work = add_kernel(body, reinterpret_cast<void*>(affine), arguments, nullptr);
    void* end[] = {&handle, &left};
    add_kernel(body, reinterpret_cast<void*>(end_round), end, work);
    CHECK(cudaGraphLaunch(instantiate(graph), streams_[stream]));
    for (unsigned i = 0; i < rounds; ++i) model_affine(part, factor, summand);
  }

  void update_graph() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    unsigned *at = part.at(), factor = 5, summand = 1;
    size_t count = part.count;
    void* arguments[] = {&at, &count, &factor, &summand};
    cudaGraph_t graph;
    on(stream);
    CHECK(cudaGraphCreate(&graph, 0));
    const cudaGraphNode_t node = add_kernel(graph, reinterpret_cast<void*>(affine), arguments, nullptr);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; ++i) {
      CHECK(cudaGraphLaunch(exec, streams_[stream]));
      model_affine(part, factor, summand);
      factor = static_cast<unsigned>(random_());
      cudaKernelNodeParams params{};
      params.func = reinterpret_cast<void*>(affine);
      params.gridDim = dim3(1 + up_to(9));
      params.blockDim = dim3(32);
      params.kernelParams = arguments;
      CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
    }
    CHECK(cudaGraphExecDestroy(exec));  // its last launch may be under way
    CHECK(cudaGraphDestroy(graph));
  }

  void upload_pageable() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    Words words = any_words(part.count);
    std::copy(words.begin(), words.end(), part.model());
    CHECK(cudaMemcpyAsync(part.at(), words.data(), part.bytes(), cudaMemcpyHostToDevice, on(stream)));
    if (part.buffer->kind == Kind::kMapped) CHECK(cudaStreamSynchronize(streams_[stream]));  // it is a copy of the host
    std::fill(words.begin(), words.end(), 0xdeadu);
  }

  void download_pageable() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    Words words(part.count);
    CHECK(cudaMemcpyAsync(words.data(), part.at(), part.bytes(), cudaMemcpyDefault, on(stream)));
    CHECK(cudaStreamSynchronize(streams_[stream]));
    expect_equal(words.data(), part.model(), part.count);
  }

  void replace_buffer() {
    Buffer& buffer = any_buffer();
    drop_buffer(buffer);
    make_buffer(buffer);
  }

  void replace_stream() {
    const int stream = kMadeFirst + static_cast<int>(up_to(kStreams - kMadeFirst));
    const cudaStream_t old = on(stream);
    make_stream(stream);
    follow(streams_[stream], old);
    CHECK(cudaStreamDestroy(old));  // what is on it goes on
  }

  void touch_managed() {
    Buffer& buffer = any_buffer();
    if (buffer.kind != Kind::kManaged || !(alone_ || concurrent_managed_)) return;
    if (concurrent_managed_) CHECK(cudaEventSynchronize(event_of(buffer)));
    for (int device = 0; !concurrent_managed_ && device < devices_; ++device) {
      CHECK(cudaSetDevice(device));
      CHECK(cudaDeviceSynchronize());
    }
    const Part part = this->part(buffer);
    expect_equal(part.at(), part.model(), part.count);
    for (size_t i = 0; i < part.count; i += 1 + up_to(100)) part.at()[i] = part.model()[i] = up_to(1000);
  }

  void use_module() {
    const int stream = any_stream();
    const Part part = any_part(stream);
    CUmodule module;
    CUfunction function;
    CUdeviceptr summand;
    size_t bytes;
    on(stream);
    CHECK_DRIVER(cuModuleLoadData(&module, kModule));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "add"));
    CHECK_DRIVER(cuModuleGetGlobal(&summand, &bytes, module, "summand"));
    const unsigned threads = static_cast<unsigned>(std::min<size_t>(part.count, 500)), value = up_to(1000);
    CHECK_DRIVER(cuMemsetD32Async(summand, value, 1, streams_[stream]));
    unsigned* at = part.at();
    void* arguments[] = {&at};
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, streams_[stream], arguments, nullptr));
    for (size_t i = 0; i < threads; ++i) part.model()[i] += value;
    CHECK(cudaStreamSynchronize(streams_[stream]));
    CHECK_DRIVER(cuModuleUnload(module));
  }

  // From stream to stream without an event.
  void hand_over_by_word() {
    const int first = any_stream_apart(), second = next_apart(first);
    if (device_of(first) != device_of(second)) return;
    const auto word = reinterpret_cast<CUdeviceptr>(handed_over_ + first);
    const Part part = any_part(first);
    run(kernel(part, 3, 1), on(first));
    CHECK_DRIVER(cuStreamWriteValue32(streams_[first], word, ++hand_overs_, 0));
    CHECK_DRIVER(cuStreamWaitValue32(on(second), word, hand_overs_, CU_STREAM_WAIT_VALUE_GEQ));
    run(kernel(part, 5, 1), streams_[second]);
    part.buffer->last = second;
    CHECK_DRIVER(cuStreamWriteValue32(streams_[second], word, 0, 0));
    CHECK(cudaStreamSynchronize(streams_[second]));  // the word is used anew
  }

  void through_array() {
    const int stream = any_stream();
    const auto [from, to] = two_parts(stream);
    if (to.count < kArrayWidth * kArrayHeight) return;
    const size_t row = kArrayWidth * sizeof(unsigned);
    const cudaStream_t on = this->on(stream);
    CHECK(cudaMemcpy2DToArrayAsync(arrays_[stream], 0, 0, from.at(), row, row, kArrayHeight, cudaMemcpyDefault, on));
    CHECK(cudaMemcpy2DFromArrayAsync(to.at(), row, arrays_[stream], 0, 0, row, kArrayHeight, cudaMemcpyDefault, on));
    std::copy_n(from.model(), kArrayWidth * kArrayHeight, to.model());
  }

  void synchronize() {
    const cudaStream_t stream = on(any_stream());
    const unsigned what = up_to(5);
    if (what == 0) CHECK(cudaStreamSynchronize(stream));
    if (what == 1) CHECK(cudaEventSynchronize(event_of(any_buffer())));
    if (what == 2 && alone_) CHECK(cudaDeviceSynchronize());
    const cudaError_t said = what == 3   ? cudaStreamQuery(stream)
                             : what == 4 ? cudaEventQuery(event_of(any_buffer()))
                                         : cudaSuccess;
    EXPECT(said == cudaSuccess || said == cudaErrorNotReady);
  }

  const bool alone_;
  unsigned *rounds_left_ = nullptr, *handed_over_ = nullptr;  // in mapped memory, for each stream
  cudaArray_t arrays_[kStreams];
  std::vector<cudaGraphExec_t> graphs_;
  unsigned hand_overs_ = 0;
};

static void play(unsigned seed, int operations, bool alone) {
  Player player(seed, alone);
  for (int i = 0; i < operations; ++i) player.step();
  player.finish();
}

// Kernels of each device reach the memory of all, but for that of pools.
static void reach_peers() {
  int devices;
  CHECK(cudaGetDeviceCount(&devices));
  for (int device = 0; device < devices; ++device) {
    CHECK(cudaSetDevice(device));
    for (int other = 0; other < devices; ++other)
      if (other != device) CHECK(cudaDeviceEnablePeerAccess(other, 0));
  }
}

int main(int count, char** arguments) {
  EXPECT(count == 4);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what is wrong is told although other threads work while this one exits
  reach_peers();
  const unsigned first = static_cast<unsigned>(std::atoi(arguments[1]));
  const int seeds = std::atoi(arguments[2]), operations = std::atoi(arguments[3]);
  for (unsigned seed = first; seed < first + static_cast<unsigned>(seeds); ++seed) {
    play(seed, operations, true);
    std::vector<std::thread> threads;
    for (unsigned i = 1; i <= 3; ++i) threads.emplace_back([=] { play(seed + 1000000 * i, operations, false); });
    for (std::thread& thread : threads) thread.join();
    if (seeds > 10) std::printf("seed %u\n", seed);
  }
  return passed();
}
