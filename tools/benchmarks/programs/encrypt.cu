// nvcc: -Xcompiler -maes
//
// What vgpu_crypto.ko does, as a program: sectors of 4 KiB are gathered in batches, copied in, encrypted or decrypted
// by the module's own kernels (AES-256-XTS), and copied out, two batches at a time. Beside it one core does the same,
// with tables and with AES instructions. Arguments: MiB in all, rounds, then the sizes of batches in KiB. A line of
// JSON for each size and direction: MB/s, the medians of the rounds. Ends with 1 if a byte was wrong.
//
// encrypt writes SECONDS KIB PAUSE_US: as a file system that writes: says "running", waits for a line, and then
// encrypts batches of that size for so long, with a pause after each (the disk's). A line of JSON: MB/s.
#include <unistd.h>

#include <memory>
#include <string>

#include "../../../guest-driver/kernel/aes_xts.cu"
#include "encrypt_cpu.h"
#include "measure.h"

namespace {

constexpr size_t kSector = 4096;
constexpr uint32_t kRowsOfSector = kSector / VGPU_XTS_ROW_BYTES;

void number_sector(uint64_t sector, uint8_t iv[16]) {
  std::memset(iv, 0, 16);
  std::memcpy(iv, &sector, sizeof sector);
}

// One of two under way.
struct Slot {
  uint8_t *staging = nullptr, *memory = nullptr;
  cudaStream_t stream = nullptr;
  uint8_t* to = nullptr;  // where its data go; nullptr: none are under way
  size_t bytes = 0;
};

class Gpu {
 public:
  Gpu() {
    for (Slot& slot : slots_) {
      CHECK(cudaHostAlloc(&slot.staging, VGPU_XTS_STAGED_BYTES, cudaHostAllocDefault));
      CHECK(cudaMalloc(&slot.memory, VGPU_XTS_DEVICE_BYTES));
      CHECK(cudaStreamCreateWithFlags(&slot.stream, cudaStreamNonBlocking));
    }
  }

  void crypt(const vgpu_xts_key& key, const uint8_t* from, uint8_t* to, size_t bytes, size_t batch) {
    int next = 0;
    for (size_t at = 0; at < bytes; at += batch, next ^= 1) {
      finish(&slots_[next]);
      start(&slots_[next], key, from + at, at / kSector, std::min(batch, bytes - at));
      slots_[next].to = to + at;
    }
    for (int i = 0; i < 2; i++, next ^= 1) finish(&slots_[next]);
  }

 private:
  static void start(Slot* slot, const vgpu_xts_key& key, const uint8_t* from, uint64_t sector, size_t bytes) {
    auto* const batch = reinterpret_cast<vgpu_xts_batch*>(slot->staging);
    const auto sectors = static_cast<uint32_t>(bytes / kSector);
    batch->requests = sectors;
    batch->rows = sectors * kRowsOfSector;
    batch->keys[0] = key;
    const size_t staged = VGPU_XTS_REQUESTS_OFFSET(batch->rows) + sectors * sizeof(vgpu_xts_request);
    auto* const requests = reinterpret_cast<vgpu_xts_request*>(slot->staging + VGPU_XTS_REQUESTS_OFFSET(batch->rows));
    for (uint32_t i = 0; i < sectors; i++) {
      vgpu_xts_request& request = requests[i];
      request = {};
      number_sector(sector + i, request.iv);
      request.first_row = i * kRowsOfSector;
      request.bytes = kSector;
      std::memcpy(slot->staging + VGPU_XTS_DATA_OFFSET + i * kSector, from + i * kSector, kSector);
    }
    slot->bytes = bytes;
    const auto blocks = [](size_t threads) {
      return static_cast<unsigned>((threads + VGPU_XTS_THREADS - 1) / VGPU_XTS_THREADS);
    };
    CHECK(cudaMemcpyAsync(slot->memory, slot->staging, staged, cudaMemcpyHostToDevice, slot->stream));
    vgpu_xts_tweaks<<<blocks(sectors), VGPU_XTS_THREADS, 0, slot->stream>>>(slot->memory);
    vgpu_xts_crypt<<<blocks(bytes / 16), VGPU_XTS_THREADS, 0, slot->stream>>>(slot->memory);
    CHECK(cudaMemcpyAsync(slot->staging + VGPU_XTS_STAMP_OFFSET, slot->memory + VGPU_XTS_STAMP_OFFSET,
                          VGPU_XTS_DATA_OFFSET - VGPU_XTS_STAMP_OFFSET + bytes, cudaMemcpyDeviceToHost, slot->stream));
  }

  static void finish(Slot* slot) {
    if (!slot->to) return;
    CHECK(cudaStreamSynchronize(slot->stream));
    std::memcpy(slot->to, slot->staging + VGPU_XTS_DATA_OFFSET, slot->bytes);
    slot->to = nullptr;
  }

  Slot slots_[2];
};

template <typename Way>
void on_core(const vgpu_xts_key& key, const uint8_t* from, uint8_t* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kSector) {
    uint8_t iv[16];
    number_sector(at / kSector, iv);
    on_cpu::crypt<Way>(key, iv, from + at, to + at, kSector);
  }
}

class Random {
 public:
  void fill(uint8_t* to, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = static_cast<uint8_t>((state_ = state_ * 1664525 + 1013904223) >> 24);
  }

 private:
  uint32_t state_ = 1;
};

int write_files(double seconds, size_t bytes, int pause_us) {
  if (bytes < kSector || bytes > VGPU_XTS_DATA_BYTES || bytes % kSector != 0) return 2;
  std::vector<uint8_t> plain(bytes), out(bytes), right(bytes);
  uint8_t secret[64];
  Random random;
  random.fill(secret, sizeof secret);
  random.fill(plain.data(), bytes);
  const vgpu_xts_key key = on_cpu::make_key(secret, false);
  on_core<on_cpu::ByInstructions>(key, plain.data(), right.data(), bytes);
  Gpu gpu;
  gpu.crypt(key, plain.data(), out.data(), bytes, bytes);  // kernels are compiled
  std::printf("running\n");
  std::fflush(stdout);
  char line[16];
  if (!std::fgets(line, sizeof line, stdin)) return 0;
  size_t batches = 0;
  bool correct = true;
  const double begin = now_us();
  while (now_us() - begin < seconds * 1e6) {
    gpu.crypt(key, plain.data(), out.data(), bytes, bytes);
    correct = correct && std::memcmp(out.data(), right.data(), kSector) == 0;
    ++batches;
    usleep(static_cast<useconds_t>(pause_us));
  }
  const double took = now_us() - begin;
  correct = correct && out == right;
  std::printf("{\"mb_per_s\": %.3f, \"batches\": %zu, \"right\": %s}\n", static_cast<double>(batches * bytes) / took,
              batches, correct ? "true" : "false");
  return correct ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "writes")
    return write_files(std::stod(argv[2]), std::stoul(argv[3]) << 10, std::stoi(argv[4]));
  if (argc < 4) return 2;
  const size_t bytes = std::stoul(argv[1]) << 20;
  const int rounds = std::stoi(argv[2]);
  std::vector<uint8_t> plain(bytes), cipher(bytes), out(bytes), expected(bytes);
  uint8_t secret[64];
  Random random;
  random.fill(secret, sizeof secret);
  random.fill(plain.data(), bytes);
  on_core<on_cpu::ByInstructions>(on_cpu::make_key(secret, false), plain.data(), cipher.data(), bytes);
  Gpu gpu;
  bool all_right = true;
  for (const bool decrypt : {false, true}) {
    const vgpu_xts_key key = on_cpu::make_key(secret, decrypt);
    const std::vector<uint8_t>&from = decrypt ? cipher : plain, &right = decrypt ? plain : cipher;
    const auto speed = [&](auto work) { return static_cast<double>(bytes) / median_us(rounds, work); };
    const double tables = speed([&] { on_core<on_cpu::ByTables>(key, from.data(), expected.data(), bytes); });
    const bool tables_right = expected == right;
    const double instructions =
        speed([&] { on_core<on_cpu::ByInstructions>(key, from.data(), expected.data(), bytes); });
    for (int i = 3; i < argc; i++) {
      const size_t batch = std::stoul(argv[i]) << 10;
      if (batch < kSector || batch > VGPU_XTS_DATA_BYTES || batch % kSector != 0) return 2;
      std::fill(out.begin(), out.end(), 0);
      gpu.crypt(key, from.data(), out.data(), bytes, batch);  // kernels are compiled
      const bool correct = tables_right && expected == right && out == right;
      all_right = all_right && correct;
      const double here = speed([&] { gpu.crypt(key, from.data(), out.data(), bytes, batch); });
      std::printf(
          "{\"direction\": \"%s\", \"batch\": %zu, \"gpu\": %.1f, \"tables\": %.1f, \"instructions\": %.1f, "
          "\"right\": %s}\n",
          decrypt ? "read" : "write", batch, here, tables, instructions, correct ? "true" : "false");
      std::fflush(stdout);
    }
  }
  return all_right ? 0 : 1;
}
