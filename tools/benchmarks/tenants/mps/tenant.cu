// One tenant of tools/bench mps: instances of one kernel, as they arrive.
//
//   tenant calibrate KIND,... ms= waves= ...     prints for each how many rounds make a launch that long
//   tenant serve KIND blocks= rounds= log_words=        says "ready", then does what the lines on stdin say:
//     check                                             runs once and compares with the host
//     poisson BEGIN SEED RATE COUNT [BYTES TIMES]       so many instances, RATE a second on average; each
//                                                       copies BYTES in first, and has TIMES as many rounds
//     copies BEGIN COUNT BYTES                          so many copies of input alone
//     backlog BEGIN SECONDS DEPTH                       always DEPTH of them queued, for so long
//     short BEGIN SECONDS EVERY_US                      one now and then, and waits for it
//   and answers each with a line of JSON. BEGIN is in nanoseconds of CLOCK_MONOTONIC, as all times are. An instance is
//   [arrival, start, end]; the start is by the device's own measure. Ends with stdin.
#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <sstream>
#include <thread>

#include "work.h"

namespace mps_bench {
namespace {

void sleep_until(int64_t when) {
  const int64_t left = when - now_ns();
  if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
}

// Short pauses without sleep: waking up takes longer than what is measured after them.
void pause_until(int64_t when) {
  constexpr int64_t kShort = 1'000'000;
  if (when - now_ns() > kShort) sleep_until(when);
  while (now_ns() < when) {
  }
}

struct Instance {
  int64_t arrived, started, ended;
};

// Waits for launches in their order, on a thread of its own, so that arrivals are not late because of it.
class Waiter {
 public:
  Waiter() : thread_([this] { wait(); }) {}
  ~Waiter() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(int64_t arrived, cudaEvent_t before, cudaEvent_t after) {
    const std::lock_guard lock(mutex_);
    queue_.push_back({arrived, before, after});
    changed_.notify_all();
  }
  // Until at most `count` are under way.
  void settle(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.size() <= count; });
  }
  const std::vector<Instance>& instances() const { return instances_; }

 private:
  struct Pending {
    int64_t arrived;
    cudaEvent_t before, after;
  };

  void wait() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return done_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Pending next = queue_.front();
      lock.unlock();
      CHECK(cudaEventSynchronize(next.after));
      const int64_t ended = now_ns();
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, next.before, next.after));
      CHECK(cudaEventDestroy(next.before));
      CHECK(cudaEventDestroy(next.after));
      lock.lock();
      instances_.push_back({next.arrived, ended - static_cast<int64_t>(ms * 1e6), ended});
      queue_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Pending> queue_;
  std::vector<Instance> instances_;
  bool done_ = false;
  std::thread thread_;
};

class Tenant {
 public:
  Tenant(const Kind& kind, Grid grid, const Options& options)
      : work_(kind, grid, static_cast<int>(options.number("log_words", 20))),
        rounds_(static_cast<int>(options.number("rounds", 1))) {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    work_.launch(1, stream_);  // code is loaded at its first launch
    CHECK(cudaStreamSynchronize(stream_));
  }

  void check() {
    const std::string wrong = work_.wrong(rounds_);
    std::printf("{\"kernel\":\"%s\",\"wrong\":\"%s\"}\n", work_.name(), wrong.c_str());
  }

  void poisson(int64_t begin, unsigned seed, double rate, int count, double bytes, double times) {
    std::mt19937 random(seed);
    if (bytes > 0) work_.prepare_copies();
    const Instances each{static_cast<size_t>(bytes), std::max(1, static_cast<int>(rounds_ * times + 0.5))};
    Waiter waiter;
    double at = 0;  // seconds
    for (int i = 0; i < count; ++i) {
      at -= std::log(1 - (random() >> 8) * (1.0 / (1 << 24))) / rate;
      const int64_t arrival = begin + static_cast<int64_t>(at * 1e9);
      sleep_until(arrival);
      push(&waiter, arrival, each);
    }
    waiter.settle(0);
    report(waiter.instances());
  }

  void copies(int64_t begin, int count, double bytes) {
    work_.prepare_copies();
    std::vector<Instance> instances;
    sleep_until(begin);
    for (int i = 0; i < count; ++i) {
      const int64_t started = now_ns();
      work_.copy(static_cast<size_t>(bytes), stream_);
      CHECK(cudaStreamSynchronize(stream_));
      instances.push_back({started, started, now_ns()});
    }
    report(instances);
  }

  void backlog(int64_t begin, double seconds, int depth) {
    Waiter waiter;
    sleep_until(begin);
    while (now_ns() < begin + static_cast<int64_t>(seconds * 1e9)) {
      push(&waiter, now_ns(), {0, rounds_});
      waiter.settle(static_cast<size_t>(depth) - 1);
    }
    waiter.settle(0);
    report(waiter.instances());
  }

  void now_and_then(int64_t begin, double seconds, double every_us) {
    std::mt19937 random(7);
    std::vector<Instance> instances;
    sleep_until(begin);
    const int64_t end = begin + static_cast<int64_t>(seconds * 1e9);
    for (int64_t next = begin; next < end;) {
      pause_until(next);
      const int64_t launched = now_ns();
      work_.launch(rounds_, stream_);
      CHECK(cudaStreamSynchronize(stream_));
      const int64_t ended = now_ns();
      instances.push_back({launched, launched, ended});
      // Half to one and a half times as long: not in step with whatever the others do.
      next = ended + static_cast<int64_t>(every_us * 1000 * (0.5 + random() % 1024 / 1024.0));
    }
    report(instances);
  }

 private:
  struct Instances {
    size_t bytes;  // of input that each brings
    int rounds;
  };

  void push(Waiter* waiter, int64_t arrival, const Instances& each) {
    cudaEvent_t before, after;
    CHECK(cudaEventCreate(&before));
    CHECK(cudaEventCreateWithFlags(&after, cudaEventBlockingSync));
    if (each.bytes != 0) work_.copy(each.bytes, stream_);
    CHECK(cudaEventRecord(before, stream_));
    work_.launch(each.rounds, stream_);
    CHECK(cudaEventRecord(after, stream_));
    waiter->add(arrival, before, after);
  }

  void report(const std::vector<Instance>& instances) const {
    std::printf("{\"kernel\":\"%s\",\"instances\":[", work_.name());
    const char* between = "";
    for (const Instance& each : instances) {
      std::printf("%s[%lld,%lld,%lld]", between, static_cast<long long>(each.arrived),
                  static_cast<long long>(each.started), static_cast<long long>(each.ended));
      between = ",";
    }
    std::printf("]}\n");
  }

  Work work_;
  int rounds_;
  cudaStream_t stream_;
};

// Sorted times of some runs.
std::vector<double> times_ns(Work* work, int rounds, int runs) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const int64_t begin = now_ns();
    work->launch(rounds, nullptr);
    CHECK(cudaStreamSynchronize(nullptr));
    times.push_back(static_cast<double>(now_ns() - begin));
  }
  std::sort(times.begin(), times.end());
  return times;
}

// A GPU that has idled takes some time to raise its clocks.
void keep_busy(double ms) {
  Work work(*find_kind("TEA"), {1024, kThreads}, 20);
  for (const int64_t until = now_ns() + static_cast<int64_t>(ms * 1e6); now_ns() < until;) times_ns(&work, 16, 1);
}

void calibrate(const Kind& kind, const Options& options) {
  const bool brief = std::strcmp(kind.name, "short") == 0;
  const double wanted_ns = options.number(brief ? "short_us" : "ms", brief ? 10 : 20) * (brief ? 1e3 : 1e6);
  cudaDeviceProp properties;
  int resident = 0;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kind.kernel, kThreads, 0));
  const int waves = static_cast<int>(options.number("waves", 50));
  const Grid grid{static_cast<uint32_t>(brief ? 4 : waves * properties.multiProcessorCount * resident), kThreads};
  Work work(kind, grid, static_cast<int>(options.number("log_words", 20)));
  times_ns(&work, 1, 3);
  const double length_ns = std::max(wanted_ns, 2e6);
  int rounds = 1;
  while (times_ns(&work, rounds, 1)[0] < length_ns && rounds < 1 << 26) rounds *= 2;
  const int few = rounds / 8 + 1;
  const double large = times_ns(&work, rounds, 5)[0], small = times_ns(&work, few, 5)[0];
  const double slope = rounds > few ? (large - small) / (rounds - few) : large;
  const double fixed = brief ? 0 : std::max(0.0, large - slope * rounds);  // a call and a wait are no part of `short`
  rounds = std::max(1, static_cast<int>((wanted_ns - fixed) / slope + 0.5));
  const std::vector<double> alone = times_ns(&work, rounds, 7);
  std::printf("{\"kernel\":\"%s\",\"blocks\":%u,\"resident\":%d,\"sms\":%d,\"rounds\":%d,\"alone_ns\":%.0f}\n",
              kind.name, grid.blocks, resident, properties.multiProcessorCount, rounds, alone[alone.size() / 2]);
  std::fflush(stdout);
}

int calibrate_all(const std::string& names, const Options& options) {
  keep_busy(options.number("warm_ms", 0));
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const Kind* kind = find_kind(name);
    if (!kind) {
      std::fprintf(stderr, "no kernel %s\n", name.c_str());
      return 2;
    }
    calibrate(*kind, options);
  }
  return 0;
}

int serve(const std::string& name, const Options& options) {
  const Kind* kind = find_kind(name);
  if (!kind) {
    std::fprintf(stderr, "no kernel %s\n", name.c_str());
    return 2;
  }
  Tenant tenant(*kind, {static_cast<uint32_t>(options.number("blocks", 1)), kThreads}, options);
  std::printf("ready\n");
  std::fflush(stdout);
  char line[256];
  while (std::fgets(line, sizeof line, stdin)) {
    long long begin = 0;
    double second = 0, third = 0, fourth = 0, bytes = 0, times = 1;
    if (std::strncmp(line, "check", 5) == 0) {
      tenant.check();
    } else if (std::sscanf(line, "poisson %lld %lf %lf %lf %lf %lf", &begin, &second, &third, &fourth, &bytes,
                           &times) >= 4) {
      tenant.poisson(begin, static_cast<unsigned>(second), third, static_cast<int>(fourth), bytes, times);
    } else if (std::sscanf(line, "copies %lld %lf %lf", &begin, &second, &bytes) == 3) {
      tenant.copies(begin, static_cast<int>(second), bytes);
    } else if (std::sscanf(line, "backlog %lld %lf %lf", &begin, &second, &third) == 3) {
      tenant.backlog(begin, second, static_cast<int>(third));
    } else if (std::sscanf(line, "short %lld %lf %lf", &begin, &second, &third) == 3) {
      tenant.now_and_then(begin, second, third);
    } else {
      std::fprintf(stderr, "not understood: %s", line);
      return 2;
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace mps_bench

int main(int argc, char** argv) {
  if (argc < 3 || (std::strcmp(argv[1], "serve") != 0 && std::strcmp(argv[1], "calibrate") != 0)) {
    std::fprintf(stderr, "usage: %s serve|calibrate KIND [name=value ...]\n", argv[0]);
    return 2;
  }
  const Options options(argc, argv);
  return argv[1][0] == 's' ? mps_bench::serve(argv[2], options) : mps_bench::calibrate_all(argv[2], options);
}
