// Feeds command rings with whatever libFuzzer thinks of, down to the handlers. The input is a list of commands, each
// one byte and what it needs; most of them publish a record that is well framed, so that the handlers are reached:
//   0..  a record: opcode, context, handles and addresses from small sets, the rest raw
//   250  raw bytes into the record area, with a raw tail
//   251  a raw sequence number for the next record
//   252  a region dropped and added again
//   253  a sticky error
#include <cstdint>
#include <cstdlib>

#include "backend/runner/process.h"
#include "memory/base/log.h"
#include "tests/fuzz/input.h"
#include "tests/unit/runner/fake_device.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kRegion = 0x40000000, kRegionBytes = 4 * 4096;
constexpr uint64_t kRegionOffset = 2 * VGPU_RING_BYTES;
constexpr uint64_t kRamBytes = kRegionOffset + kRegionBytes;

// One guest process; made anew for every input, so that inputs do not depend on each other. The record loop's thread is
// left out: what it does between take() and execute() is done here.
class Harness {
 public:
  Harness(const Reservation* window, const UniqueFd& ram, std::byte* memory) : ram_(memory) {
    std::memset(ram_, 0, 2 * VGPU_RING_BYTES);
    auto made = Process::make(window, [&](DeviceHost* host) -> std::unique_ptr<Device> {
      return std::make_unique<FakeDevice>(window->base() + VGPU_WINDOW_DEVICE_OFFSET, host);
    });
    process_ = std::move(made.value());
    process_->set_waker(make_futex_waker());
    if (!process_->memory().add_ram(0, UniqueFd(dup(ram.get())), kRamBytes, 0).ok()) std::abort();
    for (uint32_t id = 0; id < 2; ++id) {
      const RunnerSegment segment{0, 0, uint64_t{id} * VGPU_RING_BYTES, VGPU_RING_BYTES};
      rings_[id] = process_->add_ring(id, 0, 0, std::span(&segment, 1)).value();
    }
    add_region();
  }

  void run(Input& input) {
    while (!input.empty()) {
      const uint8_t command = input.byte();
      if (command == 250)
        publish_raw(input);
      else if (command == 251)
        seq_ = input.number<uint64_t>();
      else if (command == 252)
        change_region();
      else if (command == 253)
        process_->poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
      else
        publish_record(command, input);
      serve();
    }
  }

 private:
  void add_region() {
    const RunnerSegment segment{0, 0, kRegionOffset, kRegionBytes};
    if (!process_->memory().add_region(1, kRegion, VGPU_REGION_DEVICE_VISIBLE, std::span(&segment, 1)).ok()) abort();
  }
  void change_region() {
    if (process_->memory().drop_region(1, nullptr).ok()) add_region();
  }
  vgpu_ring_header* header(int ring) {
    return reinterpret_cast<vgpu_ring_header*>(ram_ + static_cast<size_t>(ring) * VGPU_RING_BYTES);
  }
  std::byte* records(int ring) { return reinterpret_cast<std::byte*>(header(ring)) + VGPU_RING_RECORDS_OFFSET; }

  void publish_raw(Input& input) {
    const int ring = input.byte() & 1;
    const auto bytes = input.take(input.byte());
    const uint64_t at = header(ring)->tail % VGPU_RING_RECORDS_BYTES;
    const size_t fits = std::min<size_t>(bytes.size(), VGPU_RING_RECORDS_BYTES - at);
    if (fits) std::memcpy(records(ring) + at, bytes.data(), fits);
    header(ring)->tail += input.byte() & 1 ? bytes.size() / 16 * 16 : input.number<uint64_t>();
  }

  // Words of the arguments: half of them something that means something here.
  uint64_t word(Input& input) {
    const uint8_t choice = input.byte();
    const uint64_t device = process_->memory().window().base() + VGPU_WINDOW_DEVICE_OFFSET;
    if (choice < 64) return choice;
    if (choice < 128) return uint64_t{choice & 15u} << 56 | uint64_t{1} << 32 | (choice >> 4 & 3);
    if (choice < 160) return kRegion + (choice & 31) * 512;
    if (choice < 192) return device + (choice & 31) * 512;
    return input.number<uint64_t>();
  }

  void publish_record(uint8_t command, Input& input) {
    const int ring = command >= 128;
    const uint32_t opcode = command % 128;
    const size_t words = opcode < wire::kOpcodes ? wire::kCalls[opcode].args_bytes / 8 : input.byte();
    std::vector<uint64_t> args(words);
    for (uint64_t& value : args) value = word(input);
    std::span<const std::byte> tail;
    if (opcode < wire::kOpcodes && wire::kCalls[opcode].tail_length >= 0) {
      tail = input.take(input.byte());
      const auto length = static_cast<uint32_t>(tail.size());
      const auto at = static_cast<size_t>(wire::kCalls[opcode].tail_length);
      std::memcpy(reinterpret_cast<std::byte*>(args.data()) + at, &length, sizeof(length));
    }
    const size_t bytes = (sizeof(vgpu_record) + words * 8 + tail.size() + 15) / 16 * 16;
    const uint64_t at = header(ring)->tail % VGPU_RING_RECORDS_BYTES;
    if (bytes > VGPU_RING_RECORDS_BYTES - at) return;
    const vgpu_record record{static_cast<uint32_t>(bytes), opcode, seq_++, word(input), 0};
    std::memset(records(ring) + at, 0, bytes);
    std::memcpy(records(ring) + at, &record, sizeof(record));
    if (words) std::memcpy(records(ring) + at + sizeof(record), args.data(), words * 8);
    if (!tail.empty()) std::memcpy(records(ring) + at + sizeof(record) + words * 8, tail.data(), tail.size());
    header(ring)->tail += bytes;
  }

  void serve() {
    for (const CommandRingRef& ring : rings_) {
      std::string why;
      for (int i = 0; i < 64; ++i) {
        const CommandRing::Take taken = ring->take(&ring->pending, &why);
        if (taken == CommandRing::Take::kNothing) break;
        if (taken == CommandRing::Take::kBroken)
          process_->protocol_error(why);
        else
          process_->execute(ring, ring->pending);
      }
    }
  }

  std::byte* const ram_;
  std::unique_ptr<Process> process_;
  CommandRingRef rings_[2];
  uint64_t seq_ = 1;
};

}  // namespace
}  // namespace bandsaw::runner

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bandsaw;
  using namespace bandsaw::runner;
  static const UniqueFd ram = [] {
    log::silence();
    UniqueFd fd(memfd_create("ram", MFD_CLOEXEC));
    if (ftruncate(fd.get(), kRamBytes) != 0) std::abort();
    return fd;
  }();
  static auto* const memory =
      static_cast<std::byte*>(mmap(nullptr, kRamBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ram.get(), 0));
  static const Reservation window = std::move(
      Reservation::make(VGPU_WINDOW_BYTES, {VGPU_WINDOW_BASE_0, VGPU_WINDOW_BASE_1, VGPU_WINDOW_BASE_2}).value());
  Input input({reinterpret_cast<const std::byte*>(data), size});
  Harness(&window, ram, memory).run(input);
  return 0;
}
