// Memory is registered while another thread writes next to it, in the same pages, and to it: nothing that it writes is
// lost.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "check.h"

constexpr size_t kPage = 4096;
constexpr int kRounds = 200;

// Counts at both places, and alone; whether they are the same at the end.
bool counts_on(volatile uint64_t* one, volatile uint64_t* other, const std::atomic<bool>* over) {
  uint64_t own = 0;
  while (!*over) {
    ++own;
    *one = *one + 1;
    *other = *other + 1;
  }
  return *one == own && *other == own;
}

void register_beside_a_writer(size_t begin, size_t bytes) {
  char* const pages = static_cast<char*>(std::aligned_alloc(kPage, 4 * kPage));
  for (size_t i = 0; i < 4 * kPage; ++i) pages[i] = 0;
  auto* const beside = reinterpret_cast<volatile uint64_t*>(pages + begin - 8);
  auto* const within = reinterpret_cast<volatile uint64_t*>(pages + begin + bytes / 2 / 8 * 8);
  std::atomic<bool> over{false};
  bool kept = false;
  std::thread writer([&] { kept = counts_on(beside, within, &over); });
  for (int i = 0; i < kRounds; ++i) {
    CHECK(cudaHostRegister(pages + begin, bytes, cudaHostRegisterDefault));
    CHECK(cudaHostUnregister(pages + begin));
  }
  over = true;
  writer.join();
  EXPECT(kept);
  std::free(pages);
}

int main() {
  CHECK(cudaFree(nullptr));
  register_beside_a_writer(64, 256);
  register_beside_a_writer(kPage - 64, kPage);
  register_beside_a_writer(64, 3 * kPage);
  return passed();
}
