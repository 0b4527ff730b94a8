// Managed memory between the two sides: whatever touches it finds the newest bytes. System calls, host functions,
// graphs, captures, copies, prefetches; then many random uses, checked against a copy of what should be there.
// vm: yes
// nvcc: -lcuda
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "check.h"

__global__ void add(int* data, int count, int what) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] += what;
}

__global__ void slow_add(int* data, int count, int what) {
  const long long start = clock64();
  while (clock64() - start < 20'000'000) {
  }
  for (int i = threadIdx.x; i < count; i += blockDim.x) data[i] += what;
}

constexpr int kCount = 1 << 20;  // two blocks of 2 MiB

static int* numbers() {
  int* data;
  CHECK(cudaMallocManaged(&data, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) data[i] = i;
  return data;
}

// What the device has, through a pipe: the kernel touches it for us.
static void system_calls(cudaStream_t stream) {
  int* const data = numbers();
  add<<<64, 256, 0, stream>>>(data, kCount, 1);
  CHECK(cudaStreamSynchronize(stream));
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], data + 5, 16), 16);
  add<<<64, 256, 0, stream>>>(data, kCount, 1);
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(read(ends[0], data + kCount - 4, 16), 16);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(data[kCount - 4 + i], 5 + i + 1);
  add<<<64, 256, 0, stream>>>(data, kCount, 1);
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(data[kCount - 1], 5 + 3 + 2);
  EXPECT_EQ(data[0], 3);
  close(ends[0]), close(ends[1]);
  CHECK(cudaFree(data));
}

static void touch_while_it_runs(cudaStream_t stream) {
  int* const data = numbers();
  slow_add<<<1, 256, 0, stream>>>(data, kCount, 1);
  for (int i = 0; i < kCount; i += 1000) EXPECT_EQ(data[i], i + 1);
  slow_add<<<1, 256, 0, stream>>>(data, kCount, 1);
  data[7] = 0;
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(data[7], 0);
  EXPECT_EQ(data[8], 10);
  CHECK(cudaFree(data));
}

static void CUDART_CB in_stream_order(void* pointer) {
  int* const data = static_cast<int*>(pointer);
  EXPECT_EQ(data[1], 2 + data[0]);
  data[0] = 100;
  data[2000] += data[2001];
}

static void host_functions(cudaStream_t stream) {
  int* const data = numbers();
  data[0] = data[1] = 0;
  add<<<64, 256, 0, stream>>>(data + 1, kCount - 1, 2);
  CHECK(cudaLaunchHostFunc(stream, in_stream_order, data));
  add<<<64, 256, 0, stream>>>(data, kCount, 1);
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(data[0], 101);
  EXPECT_EQ(data[1], 3);
  EXPECT_EQ(data[2000], 2002 + 2003 + 1);
  EXPECT_EQ(data[kCount - 1], kCount - 1 + 3);
  CHECK(cudaFree(data));
}

static void graphs(cudaStream_t stream) {
  int* const data = numbers();
  data[0] = data[1] = 0;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  add<<<64, 256, 0, stream>>>(data + 1, kCount - 1, 2);
  EXPECT_EQ(data[5000], 5000);  // a touch beside a capture
  CHECK(cudaLaunchHostFunc(stream, in_stream_order, data));
  CHECK(cudaMemcpyAsync(data + 10, data, sizeof(int), cudaMemcpyDefault, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 3; ++round) {
    data[0] = data[1] = 0;
    data[3] = 40;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(data[10], 100);
    EXPECT_EQ(data[3], 42);
    EXPECT_EQ(data[kCount - 1], kCount - 1 + 2 * (round + 1));
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(data));
}

// Attached to a stream, the host may use it while another stream's kernel runs.
static void attached(cudaStream_t stream) {
  cudaStream_t other;
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  int *const mine = numbers(), *const host = numbers();
  CHECK(cudaStreamAttachMemAsync(stream, mine, 0, cudaMemAttachSingle));
  CHECK(cudaStreamAttachMemAsync(stream, host, 0, cudaMemAttachHost));
  for (int round = 1; round < 20; ++round) {
    add<<<64, 256, 0, stream>>>(mine, kCount, 1);
    host[round] = -round;
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(mine[9], 9 + round);
  }
  CHECK(cudaStreamAttachMemAsync(stream, host, 0, cudaMemAttachGlobal));
  CHECK(cudaStreamSynchronize(stream));
  add<<<64, 256, 0, other>>>(host, kCount, 1);
  CHECK(cudaStreamSynchronize(other));
  EXPECT_EQ(host[3], -2);
  CHECK(cudaStreamDestroy(other));
  CHECK(cudaFree(mine));
  CHECK(cudaFree(host));
}

struct Model {
  int* data = nullptr;
  std::vector<int> expected;
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int below(int limit) { return static_cast<int>(engine_() % static_cast<unsigned>(limit)); }

 private:
  std::mt19937 engine_;
};

static void make(Model* model, Random* random) {
  if (model->data) CHECK(cudaFree(model->data));
  const int bytes[] = {4, 4096, 20000, 900000, 3 << 20, 9 << 20};
  model->expected.assign(static_cast<size_t>(bytes[random->below(6)]) / 4, 0);
  CHECK(cudaMallocManaged(&model->data, model->expected.size() * 4,
                          random->below(4) ? cudaMemAttachGlobal : cudaMemAttachHost));
  CHECK(cudaStreamAttachMemAsync(nullptr, model->data, 0, cudaMemAttachGlobal));
  std::memset(model->data, 0, model->expected.size() * 4);
}

static void use(Model* model, Random* random, cudaStream_t stream, int* device, int what) {
  const int size = static_cast<int>(model->expected.size()), from = random->below(size);
  const int count = 1 + random->below(size - from), value = random->below(1000);
  int *const data = model->data + from, *const expected = model->expected.data() + from;
  const size_t bytes = static_cast<size_t>(count) * 4;
  const cudaMemLocation place{random->below(2) ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost, 0};
  switch (what) {
    case 0:
      for (int i = 0; i < count; i += 97) data[i] = expected[i] = value;
      break;
    case 1:
      CHECK(cudaMemsetAsync(data, value & 255, bytes, stream));
      std::memset(expected, value & 255, bytes);
      break;
    case 2:
      CHECK(cudaMemPrefetchAsync(data, bytes, place, 0, stream));
      break;
    case 3: {
      std::vector<int> pageable(static_cast<size_t>(count), value);
      CHECK(cudaMemcpyAsync(data, pageable.data(), bytes, cudaMemcpyDefault, stream));
      std::fill(expected, expected + count, value);
      CHECK(cudaStreamSynchronize(stream));
      break;
    }
    case 4: {
      std::vector<int> pageable(static_cast<size_t>(count));
      CHECK(cudaMemcpyAsync(pageable.data(), data, bytes, cudaMemcpyDefault, stream));
      CHECK(cudaStreamSynchronize(stream));
      EXPECT_EQ(std::memcmp(pageable.data(), expected, bytes), 0);
      break;
    }
    case 5:
      CHECK(cudaMemcpyAsync(device, data, bytes, cudaMemcpyDefault, stream));
      add<<<16, 128, 0, stream>>>(device, count, 3);
      CHECK(cudaMemcpyAsync(data, device, bytes, cudaMemcpyDefault, stream));
      for (int i = 0; i < count; ++i) expected[i] += 3;
      break;
    case 6:
      EXPECT_EQ(data[count / 2], expected[count / 2]);
      break;
    default:
      add<<<16, 128, 0, stream>>>(data, count, value);
      for (int i = 0; i < count; ++i) expected[i] += value;
  }
}

static void random_uses(cudaStream_t stream) {
  Random random(17);
  std::vector<Model> models(6);
  for (Model& model : models) make(&model, &random);
  int* device;
  CHECK(cudaMalloc(&device, 9 << 20));
  for (int round = 0; round < 1500; ++round) {
    Model& model = models[static_cast<size_t>(random.below(6))];
    if (random.below(60) == 0) make(&model, &random);
    use(&model, &random, stream, device, random.below(9));
    if (random.below(40)) continue;
    EXPECT_EQ(std::memcmp(model.data, model.expected.data(), model.expected.size() * 4), 0);
  }
  for (const Model& model : models) {
    EXPECT_EQ(std::memcmp(model.data, model.expected.data(), model.expected.size() * 4), 0);
    CHECK(cudaFree(model.data));
  }
  CHECK(cudaFree(device));
}

int main() {
  int concurrent = -1;
  CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
  EXPECT(concurrent == 0 || concurrent == 1);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  system_calls(stream);
  touch_while_it_runs(stream);
  host_functions(stream);
  graphs(stream);
  attached(stream);
  random_uses(stream);
  CHECK(cudaStreamDestroy(stream));
  return passed();
}
