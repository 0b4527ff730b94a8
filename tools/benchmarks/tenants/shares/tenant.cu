// One tenant of tools/bench shares: keeps a bounded number of asynchronous tasks queued and never waits for all of
// them.
//
//   tenant calibrate KIND                  prints what a round of KIND costs
//   tenant run KIND name=value ...         says "running", waits for the line "go" on stdin, works until the line
//   "stop"
//                                          (or for seconds=), writes log= and prints a summary
//
// KIND is lu (short tasks), heart (long ones), copy (host to device), tiny (empty kernels), compute-mix (lu and now and
// then a copy) or copy-mix (copies and now and then lu). Times are of CLOCK_MONOTONIC. The log has a line for each task
// that was seen to end: launched and ended in nanoseconds, its nominal length in microseconds, its engine.
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "kernels.h"
#include "tenant.h"

namespace tenant {
namespace {

// The device memory of all kinds, and one task of each.
class Work {
 public:
  explicit Work(size_t copy_bytes) : copy_bytes_(copy_bytes) {
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    blocks_ = std::min(2 * properties.multiProcessorCount, 4 * kTiles);
    const size_t floats = size_t(kTiles + blocks_) * kTile * kTile;
    std::vector<float> matrix(floats, 0.5f);
    std::vector<unsigned char> film(kFilm);
    for (int i = 0; i < kFilm; ++i) film[i] = static_cast<unsigned char>(i * 2654435761u >> 24);
    CHECK(cudaMalloc(&matrix_, floats * sizeof(float)));
    CHECK(cudaMalloc(&film_, kFilm));
    CHECK(cudaMalloc(&places_, kPoints * sizeof(int)));
    CHECK(cudaMemcpy(matrix_, matrix.data(), floats * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(film_, film.data(), kFilm, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(places_, 0, kPoints * sizeof(int)));
    if (copy_bytes == 0) return;
    CHECK(cudaMalloc(&target_, copy_bytes));
    CHECK(cudaMallocHost(&source_, copy_bytes));
    std::memset(source_, 1, copy_bytes);
  }

  void launch(const std::string& kind, int rounds, cudaStream_t stream) const {
    if (kind == "lu") lu_like<<<blocks_, dim3(kTile, kTile), 0, stream>>>(matrix_, rounds);
    if (kind == "heart") heart_like<<<kPoints, kPointThreads, 0, stream>>>(film_, places_, rounds);
    if (kind == "tiny") nothing<<<1, 1, 0, stream>>>();
    if (kind == "copy") CHECK(cudaMemcpyAsync(target_, source_, copy_bytes_, cudaMemcpyHostToDevice, stream));
    if (kind != "copy") CHECK(cudaGetLastError());
  }

 private:
  size_t copy_bytes_;
  int blocks_ = 0;
  float* matrix_ = nullptr;
  unsigned char *film_ = nullptr, *target_ = nullptr, *source_ = nullptr;
  int* places_ = nullptr;
};

struct Task {
  int64_t launched, ended;
  float nominal_us;
  char engine;  // 'k': kernel, 'c': copy
};

// A stream with at most `depth` tasks queued, each with an event behind it.
class TaskQueue {
 public:
  TaskQueue(const Work& work, std::string kind, int depth, std::vector<Task>* log)
      : work_(work), kind_(std::move(kind)), log_(log) {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (int i = 0; i < depth; ++i) {
      cudaEvent_t event;
      CHECK(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming));
      free_.push_back(event);
    }
  }

  bool full() const { return free_.empty(); }
  bool empty() const { return queued_.empty(); }

  void push(int rounds, float nominal_us) {
    const cudaEvent_t event = free_.back();
    free_.pop_back();
    const int64_t now = now_ns();
    work_.launch(kind_, rounds, stream_);
    CHECK(cudaEventRecord(event, stream_));
    queued_.push_back({event, {now, 0, nominal_us, kind_ == "copy" ? 'c' : 'k'}});
  }

  void wait_oldest() {
    CHECK(cudaEventSynchronize(queued_.front().first));
    retire();
  }

  bool oldest_ended() {
    const cudaError_t answer = cudaEventQuery(queued_.front().first);
    if (answer == cudaErrorNotReady) return false;
    CHECK(answer);
    retire();
    return true;
  }

  uint64_t tasks = 0;
  double work_us = 0;

 private:
  void retire() {
    auto [event, task] = queued_.front();
    queued_.pop_front();
    free_.push_back(event);
    task.ended = now_ns();
    ++tasks, work_us += task.nominal_us;
    if (log_) log_->push_back(task);
  }

  const Work& work_;
  const std::string kind_;
  std::vector<Task>* log_;
  cudaStream_t stream_;
  std::vector<cudaEvent_t> free_;
  std::deque<std::pair<cudaEvent_t, Task>> queued_;
};

// Task lengths, uniform between two bounds; the same sequence for the same seed.
class Lengths {
 public:
  Lengths(const std::string& kind, const Options& options)
      : state_(static_cast<uint64_t>(options.number("seed", 1)) * 0x9e3779b97f4a7c15ull + 1),
        round_ns_(options.number(kind + "_round_ns", 1000)),
        fixed_ns_(options.number(kind + "_fixed_ns", 0)),
        low_us_(options.number("low_us", kind == "heart" ? 25000 : 200)),
        high_us_(options.number("high_us", kind == "heart" ? 40000 : 2000)) {}

  double next_us() {
    state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
    const double unit = static_cast<double>((state_ * 0x2545f4914f6cdd1dull) >> 40) / (1 << 24);
    return low_us_ + unit * (high_us_ - low_us_);
  }
  double nominal_us(int rounds) const { return (rounds * round_ns_ + fixed_ns_) / 1000; }
  int rounds(double us) const { return std::max(1, static_cast<int>((us * 1000 - fixed_ns_) / round_ns_ + 0.5)); }

 private:
  uint64_t state_;
  double round_ns_, fixed_ns_, low_us_, high_us_;
};

std::atomic<bool> stop{false};

void listen() {
  char line[64];
  while (std::fgets(line, sizeof line, stdin)) {
    if (std::strncmp(line, "stop", 4) == 0) break;
  }
  stop = true;
}

void sleep_until(int64_t when) {
  while (!stop && now_ns() < when) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// The fastest of some runs: the machine's other work only ever adds.
double shortest_ns(const Work& work, const std::string& kind, int rounds, int runs) {
  double best = 1e18;
  for (int i = 0; i < runs; ++i) {
    const int64_t begin = now_ns();
    work.launch(kind, rounds, nullptr);
    CHECK(cudaStreamSynchronize(nullptr));
    best = std::min(best, static_cast<double>(now_ns() - begin));
  }
  return best;
}

int calibrate(const std::string& kind, const Options& options) {
  const Work work(kind == "copy" ? static_cast<size_t>(options.number("copy_mib", 8) * (1 << 20)) : 0);
  shortest_ns(work, kind, 1, 5);
  if (kind == "copy" || kind == "tiny") {
    std::printf("{\"round_ns\":0,\"fixed_ns\":%.1f}\n", shortest_ns(work, kind, 1, 30));
    return 0;
  }
  const double length_ns = (kind == "heart" ? 30 : 4) * 1e6;
  int rounds = 1;
  while (shortest_ns(work, kind, rounds, 1) < length_ns && rounds < 1 << 28) rounds *= 2;
  const double large = shortest_ns(work, kind, rounds, 8), small = shortest_ns(work, kind, rounds / 8 + 1, 16);
  const double slope = (large - small) / (rounds - rounds / 8 - 1);
  // What a call and a wait cost is not GPU time when tasks are queued: no fixed part beyond a few microseconds.
  std::printf("{\"round_ns\":%.3f,\"fixed_ns\":%.1f}\n", slope,
              std::max(0.0, std::min(5000.0, large - slope * rounds)));
  return 0;
}

class Tenant {
 public:
  Tenant(const std::string& kind, const Options& options)
      : main_kind_(kind == "compute-mix" ? "lu"
                   : kind == "copy-mix"  ? "copy"
                                         : kind),
        side_kind_(kind == "compute-mix" ? "copy"
                   : kind == "copy-mix"  ? "lu"
                                         : ""),
        options_(options),
        work_(bytes(options)),
        log_wanted_(kind != "tiny"),
        lengths_(main_kind_ == "heart" ? "heart" : "lu", options),
        main_(work_, main_kind_, static_cast<int>(options.number("depth", 32)), log_wanted_ ? &log_ : nullptr),
        side_(work_, side_kind_, 1, nullptr),
        side_every_ns_(static_cast<int64_t>(options.number("side_every_ms", 20) * 1e6)),
        copy_us_(options.number("copy_us", 1000)) {
    if (log_wanted_) log_.reserve(1 << 20);
    for (const std::string& each : {main_kind_, side_kind_}) {  // code is loaded at its first launch
      if (each.empty()) continue;
      TaskQueue warm(work_, each, 1, nullptr);
      warm.push(1, 0);
      warm.wait_oldest();
    }
  }

  void run() {
    const double seconds = options_.number("seconds", 0);
    const auto on = static_cast<int64_t>(options_.number("on_ms", 0) * 1e6);
    const auto off = static_cast<int64_t>(options_.number("off_ms", 0) * 1e6);
    begin_ = now_ns();
    const int64_t end = seconds > 0 ? begin_ + static_cast<int64_t>(seconds * 1e9) : INT64_MAX;
    for (int64_t now = begin_; !stop && now < end; now = now_ns()) {
      if (on > 0 && (now - begin_) % (on + off) >= on) {
        while (!main_.empty()) main_.wait_oldest();
        sleep_until(begin_ + ((now - begin_) / (on + off) + 1) * (on + off));
        continue;
      }
      if (main_.full()) main_.wait_oldest();
      push(main_, main_kind_);
      if (!side_kind_.empty()) side(now);
    }
    if (seconds > 0) {
      while (!main_.empty()) main_.wait_oldest();
    }
    end_ = now_ns();
  }

  void report() const {
    if (const std::string path = options_.text("log"); !path.empty()) {
      std::FILE* file = std::fopen(path.c_str(), "w");
      if (!file) std::perror(path.c_str());
      for (const Task& task : log_)
        if (file)
          std::fprintf(file, "%lld %lld %.0f %c\n", static_cast<long long>(task.launched),
                       static_cast<long long>(task.ended), task.nominal_us, task.engine);
      if (file) std::fclose(file);
    }
    std::printf("{\"tasks\":%llu,\"work_us\":%.0f,\"side_tasks\":%llu,\"begin_ns\":%lld,\"end_ns\":%lld}\n",
                static_cast<unsigned long long>(main_.tasks), main_.work_us,
                static_cast<unsigned long long>(side_.tasks), static_cast<long long>(begin_),
                static_cast<long long>(end_));
    std::fflush(stdout);
  }

 private:
  size_t bytes(const Options& options) const {
    const bool copies = main_kind_ == "copy" || side_kind_ == "copy";
    return copies ? static_cast<size_t>(options.number("copy_mib", 8) * (1 << 20)) : 0;
  }

  void push(TaskQueue& queue, const std::string& kind) {
    if (kind == "copy" || kind == "tiny") return queue.push(1, kind == "copy" ? static_cast<float>(copy_us_) : 0);
    const int rounds = lengths_.rounds(lengths_.next_us());
    queue.push(rounds, static_cast<float>(lengths_.nominal_us(rounds)));
  }

  // The light half of a mixed load: one task now and then, which nothing waits for.
  void side(int64_t now) {
    if (!side_.empty() && !side_.oldest_ended()) return;
    if (now < side_next_) return;
    side_next_ = now + side_every_ns_;
    push(side_, side_kind_);
  }

  const std::string main_kind_, side_kind_;
  const Options& options_;
  const Work work_;
  std::vector<Task> log_;
  const bool log_wanted_;
  Lengths lengths_;
  TaskQueue main_, side_;
  const int64_t side_every_ns_;
  const double copy_us_;
  int64_t side_next_ = 0, begin_ = 0, end_ = 0;
};

int run(const std::string& kind, const Options& options) {
  Tenant tenant(kind, options);
  std::printf("running\n");
  std::fflush(stdout);
  char line[64];
  if (!std::fgets(line, sizeof line, stdin)) return 0;
  std::thread(listen).detach();
  tenant.run();
  tenant.report();
  _exit(0);  // what is still queued goes with the process
}

}  // namespace
}  // namespace tenant

int main(int argc, char** argv) {
  if (argc < 3 || (std::strcmp(argv[1], "run") != 0 && std::strcmp(argv[1], "calibrate") != 0)) {
    std::fprintf(stderr, "usage: %s run|calibrate KIND [name=value ...]\n", argv[0]);
    return 2;
  }
  const Options options(argc, argv);
  return argv[1][0] == 'r' ? tenant::run(argv[2], options) : tenant::calibrate(argv[2], options);
}
