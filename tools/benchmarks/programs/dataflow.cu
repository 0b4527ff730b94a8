// nvcc: -lcuda
//
// A dataflow of two programs: one makes an array on its virtual GPU, the other uses it on its own, and the array goes
// from one to the other by a shared segment, or by way of the host.
//
// Arguments: producer or consumer; the Unix socket between the two, where the consumer listens; segment NAME, memory
// FILE (host memory that both have mapped and pinned) or socket; how often; the sizes in bytes. The producer says a
// line of JSON for each size: medians in microseconds of a whole pass, from before the first kernel until the consumer
// has its result, and of the hand-over in it, from the end of the first kernel to where the second may begin. Ends with
// 1 if a result was wrong.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "../../../guest-driver/libcuda/api/bandsaw_shm.h"
#include "measure.h"

#define DRIVER(call)                                                                     \
  do {                                                                                   \
    const CUresult driver_result = (call);                                               \
    if (driver_result != CUDA_SUCCESS) {                                                 \
      std::fprintf(stderr, "%s: CUresult %d\n", #call, static_cast<int>(driver_result)); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

__global__ void produce(unsigned* words, size_t count, unsigned seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    words[i] = seed + static_cast<unsigned>(i) * 2654435761u;
  }
}

__global__ void consume(const unsigned* words, size_t count, unsigned seed, unsigned* wrong) {
  unsigned here = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    here += words[i] != seed + static_cast<unsigned>(i) * 2654435761u;
  }
  if (here > 0) atomicAdd(wrong, here);
}

namespace {

// What goes with the data in either direction.
struct Note {
  double at_us = 0, then_us = 0;
  unsigned seed = 0, wrong = 0;
};

void need(bool right, const char* what) {
  if (right) return;
  std::perror(what);
  std::exit(1);
}

void send_all(int socket, const void* data, size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t sent = ::write(socket, at, bytes);
    need(sent > 0, "write");
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

void receive_all(int socket, void* data, size_t bytes) {
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t received = ::read(socket, at, bytes);
    need(received > 0, "read");
    at += received;
    bytes -= static_cast<size_t>(received);
  }
}

int meet(bool producer, const char* path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, path, sizeof name.sun_path - 1);
  const int own = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  need(own >= 0, "socket");
  if (!producer) {
    need(::bind(own, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0 && ::listen(own, 1) == 0, path);
    return ::accept(own, nullptr, nullptr);
  }
  for (int i = 0; ::connect(own, reinterpret_cast<sockaddr*>(&name), sizeof name) < 0; ++i) {
    need(i < 3000, path);
    ::usleep(10000);
  }
  return own;
}

// One end of the way that the array takes.
struct Way {
  std::string kind;
  int socket = -1;
  CUdeviceptr device = 0;  // of this program
  void* host = nullptr;

  void open(const std::string& how, const char* name, size_t most) {
    kind = how;
    if (kind == "segment") {
      int id = 0;
      DRIVER(cuShmGetNamed(&id, name, most, 0));
      DRIVER(cuShmAt(&device, id, 0));
      return;
    }
    CHECK(cudaMalloc(reinterpret_cast<void**>(&device), most));
    if (kind == "socket") {
      CHECK(cudaMallocHost(&host, most));
      return;
    }
    const int file = ::open(name, O_RDWR | O_CLOEXEC);
    need(file >= 0, name);
    host = ::mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    need(host != MAP_FAILED, "mmap");
    CHECK(cudaHostRegister(host, most, cudaHostRegisterDefault));
  }
  // Behind the end of the kernel that made it.
  void give(size_t bytes) {
    if (kind != "segment") CHECK(cudaMemcpy(host, reinterpret_cast<void*>(device), bytes, cudaMemcpyDeviceToHost));
    if (kind == "socket") send_all(socket, host, bytes);
  }
  void take(size_t bytes) {
    if (kind == "socket") receive_all(socket, host, bytes);
    if (kind != "segment") CHECK(cudaMemcpy(reinterpret_cast<void*>(device), host, bytes, cudaMemcpyHostToDevice));
  }
  unsigned* words() const { return reinterpret_cast<unsigned*>(device); }
};

struct Pass {
  double whole_us = 0, hand_over_us = 0;
};

Pass produce_once(Way& way, size_t bytes, unsigned seed, unsigned* wrong) {
  Note note;
  note.seed = seed;
  const double begin = now_us();
  produce<<<256, 256>>>(way.words(), bytes / sizeof(unsigned), seed);
  CHECK(cudaDeviceSynchronize());
  note.at_us = now_us();
  const double made = note.at_us;
  // By the socket the note comes first, so that the reader begins with the data.
  if (way.kind == "socket") send_all(way.socket, &note, sizeof note);
  way.give(bytes);
  if (way.kind != "socket") send_all(way.socket, &note, sizeof note);
  receive_all(way.socket, &note, sizeof note);
  *wrong += note.wrong;
  return {note.then_us - begin, note.at_us - made};
}

void consume_once(Way& way, size_t bytes, unsigned* counter) {
  Note note;
  receive_all(way.socket, &note, sizeof note);
  way.take(bytes);
  note.at_us = now_us();
  CHECK(cudaMemsetAsync(counter, 0, sizeof *counter));
  consume<<<256, 256>>>(way.words(), bytes / sizeof(unsigned), note.seed, counter);
  CHECK(cudaMemcpy(&note.wrong, counter, sizeof note.wrong, cudaMemcpyDeviceToHost));
  note.then_us = now_us();
  send_all(way.socket, &note, sizeof note);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  const bool producer = std::strcmp(argv[1], "producer") == 0;
  const int rounds = std::atoi(argv[5]);
  std::vector<size_t> sizes;
  for (int i = 6; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  CHECK(cudaFree(nullptr));
  Way way;
  way.open(argv[3], argv[4], *std::max_element(sizes.begin(), sizes.end()));
  unsigned* counter = nullptr;
  CHECK(cudaMalloc(&counter, sizeof *counter));
  way.socket = meet(producer, argv[2]);
  unsigned wrong = 0, seed = 1;
  for (const size_t bytes : sizes) {
    std::vector<double> whole, hand_over;
    for (int round = -1; round < rounds; ++round) {  // the first is not counted
      if (!producer) {
        consume_once(way, bytes, counter);
        continue;
      }
      const Pass pass = produce_once(way, bytes, ++seed, &wrong);
      if (round < 0) continue;
      whole.push_back(pass.whole_us);
      hand_over.push_back(pass.hand_over_us);
    }
    if (!producer) continue;
    std::printf("{\"way\":\"%s\",\"bytes\":%zu,\"whole_us\":%.2f,\"hand_over_us\":%.2f,\"wrong\":%u}\n",
                way.kind.c_str(), bytes, median(whole), median(hand_over), wrong);
    std::fflush(stdout);
  }
  return wrong > 0;
}
