// A thread's buffers in all kinds of memory, its streams on up to three devices, and a model of what the buffers hold.
// Each buffer's operations are ordered by streams and events.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "check.h"

using Words = std::vector<unsigned>;

inline void expect_equal(const unsigned* got, const unsigned* expected, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (got[i] == expected[i]) continue;
    std::printf("word %zu of %zu is %u, the model says %u\n", i, count, got[i], expected[i]);
    std::exit(1);
  }
}

constexpr size_t kBuffers = 7;

// Buffers from this one to before that one.
struct Range {
  size_t first = 0, end = kBuffers;
};

class World {
 public:
  explicit World(unsigned seed) : random_(seed) {
    CHECK(cudaGetDeviceCount(&devices_));
    devices_ = std::min(devices_, kDevicesMost);
    CHECK(cudaDeviceGetAttribute(&concurrent_managed_, cudaDevAttrConcurrentManagedAccess, 0));
    streams_[0] = nullptr;
    streams_[1] = cudaStreamPerThread;
    for (int i = kMadeFirst; i < kStreams; ++i) make_stream(i);
    for (Buffer& buffer : buffers_) make_buffer(buffer);
  }

  // All is done and right.
  void finish() {
    for (Buffer& buffer : buffers_) drop_buffer(buffer);
    for (int i = kMadeFirst; i < kStreams; ++i) CHECK(cudaStreamDestroy(streams_[i]));
  }

 protected:
  static constexpr int kStreams = 6, kMadeFirst = 2;  // the first two streams are always there
  // Behind this one they do not wait for the legacy stream, which other threads use while these capture.
  static constexpr int kApartFirst = 3;
  static constexpr int kDevicesMost = 3;  // so that each has two streams and two buffers
  static constexpr size_t kWordsMost = 20000;
  enum class Kind { kPlain, kOrdered, kManaged, kMapped, kKinds };

  struct Buffer {
    Kind kind;
    unsigned* at = nullptr;
    Words model;
    int last = -1;                    // the stream that used it last
    std::vector<cudaEvent_t> events;  // by device; that of the stream's device lies behind that use
    bool taken = false;               // by operations that are being put on `last`
  };
  struct Part {
    Buffer* buffer;
    size_t first, count;
    unsigned* at() const { return buffer->at + first; }
    unsigned* model() const { return buffer->model.data() + first; }
    size_t bytes() const { return count * sizeof(unsigned); }
  };
  unsigned up_to(size_t most) { return static_cast<unsigned>(random_() % most); }
  int any_stream() { return static_cast<int>(up_to(kStreams)); }
  int any_stream_apart() { return kApartFirst + static_cast<int>(up_to(kStreams - kApartFirst)); }
  Buffer& any_buffer() { return buffers_[up_to(kBuffers)]; }
  Words any_words(size_t count) {
    Words words(count);
    for (unsigned& word : words) word = static_cast<unsigned>(random_());
    return words;
  }

  // Each device has buffers of its own.
  int home_of(size_t buffer) const { return static_cast<int>(buffer * static_cast<size_t>(devices_) / kBuffers); }
  Range of_device(int device) const {
    Range range{kBuffers, 0};
    for (size_t i = 0; i < kBuffers; ++i)
      if (home_of(i) == device) range = {std::min(range.first, i), i + 1};
    return range;
  }
  int device_of(int stream) const { return stream % devices_; }
  // The stream, whose device becomes the thread's.
  cudaStream_t on(int stream) {
    CHECK(cudaSetDevice(device_of(stream)));
    return streams_[stream];
  }
  // Behind what the buffer was used for.
  cudaEvent_t event_of(const Buffer& buffer) const { return buffer.events[device_of(buffer.last)]; }

  void make_stream(int i) {
    CHECK(cudaSetDevice(device_of(i)));
    int least, greatest;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    const int priority = greatest + static_cast<int>(up_to(static_cast<size_t>(least - greatest) + 1));
    const unsigned flags = i < kApartFirst ? cudaStreamDefault : cudaStreamNonBlocking;
    CHECK(cudaStreamCreateWithPriority(&streams_[i], flags, priority));
  }

  void make_buffer(Buffer& buffer) {
    buffer.model = any_words(1 + up_to(kWordsMost));
    const size_t bytes = buffer.model.size() * sizeof(unsigned);
    buffer.kind = static_cast<Kind>(up_to(static_cast<size_t>(Kind::kKinds)));
    if (devices_ > 1 && buffer.kind == Kind::kOrdered) buffer.kind = Kind::kPlain;  // other devices reach it
    do {
      buffer.last = any_stream();
    } while (device_of(buffer.last) != home_of(&buffer - buffers_));
    const cudaStream_t stream = on(buffer.last);
    if (buffer.kind == Kind::kPlain) CHECK(cudaMalloc(&buffer.at, bytes));
    if (buffer.kind == Kind::kOrdered) CHECK(cudaMallocAsync(&buffer.at, bytes, stream));
    if (buffer.kind == Kind::kManaged) CHECK(cudaMallocManaged(&buffer.at, bytes));
    if (buffer.kind == Kind::kMapped) CHECK(cudaHostAlloc(&buffer.at, bytes, cudaHostAllocMapped));
    CHECK(cudaMemcpyAsync(buffer.at, buffer.model.data(), bytes, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    buffer.events.resize(static_cast<size_t>(devices_));
    for (int device = 0; device < devices_; ++device) {
      CHECK(cudaSetDevice(device));
      CHECK(cudaEventCreateWithFlags(&buffer.events[device], up_to(2) ? cudaEventDisableTiming : cudaEventDefault));
    }
    CHECK(cudaEventRecord(event_of(buffer), on(buffer.last)));
  }

  void drop_buffer(Buffer& buffer) {
    const cudaStream_t stream = on(buffer.last);
    Words got(buffer.model.size());
    CHECK(cudaMemcpyAsync(got.data(), buffer.at, got.size() * sizeof(unsigned), cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    expect_equal(got.data(), buffer.model.data(), got.size());
    if (buffer.kind == Kind::kOrdered) CHECK(cudaFreeAsync(buffer.at, stream));
    if (buffer.kind == Kind::kPlain || buffer.kind == Kind::kManaged) CHECK(cudaFree(buffer.at));
    if (buffer.kind == Kind::kMapped) CHECK(cudaFreeHost(buffer.at));
    for (const cudaEvent_t event : buffer.events) CHECK(cudaEventDestroy(event));
  }

  // The stream goes on when what was done with the buffer is over. finish_use() says that all is on the stream.
  void take(Buffer& buffer, int stream) {
    if (buffer.last != stream) CHECK(cudaStreamWaitEvent(on(stream), event_of(buffer), 0));
    buffer.last = stream;
    buffer.taken = true;
  }
  void finish_use() {
    for (Buffer& buffer : buffers_) {
      if (std::exchange(buffer.taken, false)) CHECK(cudaEventRecord(event_of(buffer), on(buffer.last)));
    }
  }

  Part part(Buffer& buffer) {
    const size_t first = up_to(buffer.model.size());
    return {&buffer, first, 1 + up_to(buffer.model.size() - first)};
  }
  Part any_part(int stream, Range of = {}) {
    Buffer& buffer = buffers_[of.first + up_to(of.end - of.first)];
    take(buffer, stream);
    return part(buffer);
  }
  // Two parts of one size, of different buffers.
  std::pair<Part, Part> two_parts(int stream, Range of = {}) {
    const size_t buffers = of.end - of.first, from = up_to(buffers), to = (from + 1 + up_to(buffers - 1)) % buffers;
    Buffer &source_buffer = buffers_[of.first + from], &destination_buffer = buffers_[of.first + to];
    take(source_buffer, stream);
    take(destination_buffer, stream);
    Part source = part(source_buffer), destination = part(destination_buffer);
    source.count = destination.count = std::min(source.count, destination.count);
    return {source, destination};
  }

  std::mt19937 random_;
  int devices_ = 1, concurrent_managed_ = 0;
  cudaStream_t streams_[kStreams];
  Buffer buffers_[kBuffers];
};
