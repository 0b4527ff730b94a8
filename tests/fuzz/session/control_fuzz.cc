// Control requests as a hostile guest would send them: any bytes, any order, with runners that answer, fail and die in
// between, and RAM that comes and goes. What must hold: every request is answered exactly once, what a runner is told
// lies inside RAM, and every slot of the usage page comes back.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/session/processes.h"
#include "memory/base/log.h"

namespace {

using namespace bandsaw;

constexpr uint64_t kRamBytes = 1 << 20;

void check(bool holds) {
  if (!holds) std::abort();
}

struct FuzzRunner : Runner {
  uint64_t window_base() const override { return VGPU_WINDOW_BASE_0; }
  int pid() const override { return 1; }
  void send(RunnerMessage message, std::span<const std::byte> tail, std::span<const int>, Done done) override {
    if (message.count) {
      check(tail.size() == message.count * sizeof(RunnerSegment));
      uint64_t sum = 0;
      for (uint32_t i = 0; i < message.count; ++i) {
        RunnerSegment segment;
        std::memcpy(&segment, tail.data() + i * sizeof segment, sizeof segment);
        check(segment.bytes > 0 && segment.offset < kRamBytes && segment.bytes <= kRamBytes - segment.offset);
        sum += segment.bytes;
      }
      check(sum == message.bytes);
    }
    waiting.push_back(std::move(done));
  }
  void stop(Stop) override { stopped = true; }
  void fail(uint32_t) override { stopped = true; }
  void set_on_gone(std::function<void()> call) override { on_gone = std::move(call); }
  void answer(int error) {
    for (auto& done : std::exchange(waiting, {})) {
      if (done) done(error);
    }
  }
  void die() {
    answer(EPIPE);
    if (const auto call = std::exchange(on_gone, nullptr)) call();
    dead = true;
  }
  std::vector<Done> waiting;
  std::function<void()> on_gone;
  bool stopped = false, dead = false;
};

struct FuzzSource : RunnerSource {
  void take(Taken taken, uint32_t) override {
    runners.push_back(std::make_unique<FuzzRunner>());
    taken(runners.back().get());
  }
  template <typename Call>
  void each(Call call) {
    for (size_t i = 0; i < runners.size(); ++i) {
      if (!runners[i]->dead) call(*runners[i]);
    }
  }
  std::vector<std::unique_ptr<FuzzRunner>> runners;
};

struct Quiet : ProcessWatcher {
  void wake(uint32_t) override {}
  void lost(uint32_t) override {}
};

Ram ram(uint32_t id, uint64_t base) {
  static const int file = [] {
    const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
    check(::ftruncate(fd, kRamBytes) == 0);
    return fd;
  }();
  return {.id = id, .base = base, .bytes = kRamBytes, .fd = UniqueFd(::dup(file))};
}

// One step: a byte that says what happens, and for a request its length and bytes.
class Script {
 public:
  Script(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool next(uint8_t* byte) {
    if (size_ == 0) return false;
    *byte = *data_++;
    --size_;
    return true;
  }
  std::span<const std::byte> take(size_t length) {
    length = std::min(length, size_);
    const auto bytes = std::as_bytes(std::span(data_, length));
    data_ += length;
    size_ -= length;
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  log::silence();
  const BasePtr base(event_base_new());
  FuzzSource source;
  auto usage_page = UsagePageOwner::open(1 << 20);
  check(usage_page.ok());
  Quiet watcher;
  ProcessesConfig config;
  config.direct = size > 0 && data[0] & 1;
  config.arena_bytes = kRamBytes;
  auto processes = std::make_unique<Processes>(base.get(), config, &source, &usage_page.value(), &watcher);
  uint32_t next_ram = 1;
  if (!config.direct) check(processes->add_ram(ram(0, 0)).ok());
  size_t asked = 0, answered = 0;
  Script script(data, size);
  for (uint8_t step = 0; script.next(&step);) {
    switch (step % 8) {
      case 0:
        source.each([](FuzzRunner& runner) { runner.answer(ENOMEM); });
        break;
      case 1:
        source.each([](FuzzRunner& runner) { runner.stopped ? runner.die() : runner.answer(0); });
        break;
      case 2:
        if (!source.runners.empty() && !source.runners.back()->dead) source.runners.back()->die();
        break;
      case 3:
        if (!config.direct) processes->remove_ram(step / 8 % (next_ram + 1), [] {});
        break;
      case 4:
        if (!config.direct) (void)processes->add_ram(ram(next_ram++, step / 8 * kRamBytes / 2));
        break;
      case 5:
        processes->end_all(false, nullptr);
        break;
      default: {
        uint8_t length = 0;
        script.next(&length);
        const auto bytes = script.take(length);
        ++asked;
        const auto once = std::make_shared<bool>(false);
        processes->request(bytes, [&answered, once](const vgpu_ctl_reply&, std::span<const int>) {
          check(!std::exchange(*once, true));
          ++answered;
        });
      }
    }
  }
  processes.reset();
  source.each([](FuzzRunner& runner) {
    check(runner.stopped);
    runner.die();
  });
  check(asked == answered && usage_page.value().taken() == 0);
  return 0;
}
