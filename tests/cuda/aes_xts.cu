// The kernels of vgpu_crypto.ko (guest-driver/kernel/aes_xts.cu) against AES-XTS written out from FIPS 197 and IEEE
// 1619: keys of 128, 192 and 256 bits, both directions and several keys in a batch, ciphertext stealing across rows.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../../guest-driver/kernel/aes_xts.cu"
#include "check.h"

namespace {

using vgpu_xts::times;

// Of bytes in the standard's order, and as slow as that is.
class Aes {
 public:
  Aes(const uint8_t* key, uint32_t words) : rounds_(words + 6) {
    std::memcpy(keys_, key, 4 * words);
    uint8_t constant = 1;
    for (uint32_t i = words; i < 4 * (rounds_ + 1); i++) {
      uint8_t word[4];
      std::memcpy(word, keys_[i - 1], 4);
      if (i % words == 0) {
        const uint8_t first = word[0];
        for (int j = 0; j < 4; j++) word[j] = box(j < 3 ? word[j + 1] : first);
        word[0] ^= constant;
        constant = times(constant, 2);
      } else if (words > 6 && i % words == 4) {
        for (uint8_t& byte : word) byte = box(byte);
      }
      for (int j = 0; j < 4; j++) keys_[i][j] = keys_[i - words][j] ^ word[j];
    }
  }

  void encrypt(uint8_t* block) const {
    add(block, 0);
    for (uint32_t round = 1; round <= rounds_; round++) {
      uint8_t next[16];
      for (int i = 0; i < 16; i++) next[i] = box(block[(i + i % 4 * 4) % 16]);
      std::memcpy(block, next, 16);
      if (round < rounds_) mix(block, 2, 3, 1, 1);
      add(block, round);
    }
  }

  void decrypt(uint8_t* block) const {
    for (uint32_t round = rounds_; round > 0; round--) {
      add(block, round);
      if (round < rounds_) mix(block, 14, 11, 13, 9);
      uint8_t next[16];
      for (int i = 0; i < 16; i++) next[(i + i % 4 * 4) % 16] = inverse_box(block[i]);
      std::memcpy(block, next, 16);
    }
    add(block, 0);
  }

  // As the kernel's aes_expandkey lays them out: words of the schedule; inverted, those of the equivalent inverse
  // cipher.
  void schedule(uint32_t* to, bool inverted) const {
    for (uint32_t i = 0; i < 4 * (rounds_ + 1); i += 4) {
      uint8_t four[16];
      std::memcpy(four, keys_[inverted ? 4 * rounds_ - i : i], 16);
      if (inverted && i > 0 && i < 4 * rounds_) mix(four, 14, 11, 13, 9);
      std::memcpy(to + i, four, 16);
    }
  }

  uint32_t rounds() const { return rounds_; }

 private:
  static uint8_t inverse(uint8_t value) {
    for (int other = 1; other < 256; other++) {
      if (times(value, static_cast<uint8_t>(other)) == 1) return static_cast<uint8_t>(other);
    }
    return 0;
  }
  static uint8_t make_box(uint8_t value) {
    const uint8_t b = inverse(value);
    uint8_t out = 0x63;
    for (int turn = 0; turn < 5; turn++) out ^= static_cast<uint8_t>(b << turn | b >> (8 - turn));
    return out;
  }
  struct Boxes {
    uint8_t there[256], back[256];
    Boxes() {
      for (int i = 0; i < 256; i++) back[there[i] = make_box(static_cast<uint8_t>(i))] = static_cast<uint8_t>(i);
    }
  };
  static const Boxes& boxes() {
    static const Boxes made;
    return made;
  }
  static uint8_t box(uint8_t value) { return boxes().there[value]; }
  static uint8_t inverse_box(uint8_t value) { return boxes().back[value]; }

  void add(uint8_t* block, uint32_t round) const {
    for (int i = 0; i < 16; i++) block[i] ^= keys_[4 * round + i / 4][i % 4];
  }
  static void mix(uint8_t* block, uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    const uint8_t by[4] = {a, b, c, d};
    for (int column = 0; column < 16; column += 4) {
      uint8_t out[4] = {};
      for (int row = 0; row < 4; row++) {
        for (int i = 0; i < 4; i++) out[row] ^= times(block[column + i], by[(i - row + 4) % 4]);
      }
      std::memcpy(block + column, out, 4);
    }
  }

  uint32_t rounds_;
  uint8_t keys_[60][4];
};

struct Key {
  Aes data, tweak;
};

void next_tweak(uint8_t* tweak) {
  const bool carry = tweak[15] >> 7;
  for (int i = 15; i >= 0; i--) tweak[i] = static_cast<uint8_t>(tweak[i] << 1 | (i > 0 ? tweak[i - 1] >> 7 : 0));
  if (carry) tweak[0] ^= 0x87;
}

void one_block(const Aes& aes, bool decrypt, const uint8_t* tweak, uint8_t* block) {
  for (int i = 0; i < 16; i++) block[i] ^= tweak[i];
  if (decrypt)
    aes.decrypt(block);
  else
    aes.encrypt(block);
  for (int i = 0; i < 16; i++) block[i] ^= tweak[i];
}

void reference(const Key& key, bool decrypt, const uint8_t* iv, uint8_t* data, uint32_t bytes) {
  uint8_t tweak[16], next[16];
  std::memcpy(tweak, iv, 16);
  key.tweak.encrypt(tweak);
  const uint32_t rest = bytes % 16, plain_blocks = bytes / 16 - (rest != 0);
  for (uint32_t i = 0; i < plain_blocks; i++, next_tweak(tweak)) one_block(key.data, decrypt, tweak, data + 16 * i);
  if (!rest) return;
  std::memcpy(next, tweak, 16);
  next_tweak(next);
  uint8_t* const last = data + 16 * plain_blocks;
  one_block(key.data, decrypt, decrypt ? next : tweak, last);
  for (uint32_t i = 0; i < rest; i++) {
    const uint8_t taken = last[i];
    last[i] = last[16 + i];
    last[16 + i] = taken;
  }
  one_block(key.data, decrypt, decrypt ? tweak : next, last);
}

uint8_t draw() {
  static uint32_t state = 20121;
  return static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
}

Key draw_key(uint32_t words) {
  uint8_t bytes[64];
  for (uint8_t& byte : bytes) byte = draw();
  return {Aes(bytes, words), Aes(bytes + 32, words)};
}

// FIPS 197, appendix C.1: what the rest is held against.
bool reference_is_right() {
  uint8_t key[16], block[16];
  for (int i = 0; i < 16; i++) {
    key[i] = static_cast<uint8_t>(i);
    block[i] = static_cast<uint8_t>(i * 0x11);
  }
  const uint8_t expected[16] = {0x69, 0xc4, 0xe0, 0xd8, 0x6a, 0x7b, 0x04, 0x30,
                                0xd8, 0xcd, 0xb7, 0x80, 0x70, 0xb4, 0xc5, 0x5a};
  const Aes aes(key, 4);
  aes.encrypt(block);
  if (std::memcmp(block, expected, 16) != 0) return false;
  aes.decrypt(block);
  return block[1] == 0x11 && block[15] == 0xff;
}

}  // namespace

int main() {
  EXPECT(reference_is_right());
  std::vector<Key> keys;
  for (const uint32_t words : {4u, 6u, 8u}) keys.push_back(draw_key(words));
  std::vector<uint8_t> staged(VGPU_XTS_STAGED_BYTES);
  auto* const batch = reinterpret_cast<vgpu_xts_batch*>(staged.data());
  batch->stamp = 77;
  for (uint32_t i = 0; i < 6; i++) {
    const Key& key = keys[i / 2];
    key.data.schedule(batch->keys[i].data, i % 2);
    key.tweak.schedule(batch->keys[i].tweak, false);
    batch->keys[i].rounds = key.data.rounds();
    batch->keys[i].decrypt = i % 2;
  }
  for (uint8_t* at = staged.data() + VGPU_XTS_DATA_OFFSET; at < staged.data() + staged.size(); at++) *at = draw();
  std::vector<uint8_t> expected = staged;
  std::vector<vgpu_xts_request> requests;
  for (const uint32_t bytes : {16u, 17u, 31u, 32u, 496u, 511u, 512u, 513u, 527u, 528u, 1040u, 4096u, 4097u, 9999u}) {
    for (uint32_t key = 0; key < 6; key++) {
      vgpu_xts_request request{};
      for (uint8_t& byte : request.iv) byte = draw();
      request.first_row = batch->rows;
      request.bytes = bytes;
      request.key = key;
      batch->rows += (bytes + VGPU_XTS_ROW_BYTES - 1) / VGPU_XTS_ROW_BYTES;
      reference(keys[key / 2], key % 2, request.iv,
                expected.data() + VGPU_XTS_DATA_OFFSET + request.first_row * VGPU_XTS_ROW_BYTES, bytes);
      requests.push_back(request);
    }
  }
  batch->requests = static_cast<uint32_t>(requests.size());
  const size_t table = VGPU_XTS_REQUESTS_OFFSET(batch->rows), table_bytes = requests.size() * sizeof requests[0];
  std::memcpy(staged.data() + table, requests.data(), table_bytes);
  std::memcpy(expected.data() + table, requests.data(), table_bytes);
  uint8_t* memory = nullptr;
  CHECK(cudaMalloc(&memory, VGPU_XTS_DEVICE_BYTES));
  CHECK(cudaMemcpy(memory, staged.data(), staged.size(), cudaMemcpyHostToDevice));
  const auto blocks = [](uint32_t threads) { return (threads + VGPU_XTS_THREADS - 1) / VGPU_XTS_THREADS; };
  vgpu_xts_tweaks<<<blocks(batch->requests), VGPU_XTS_THREADS>>>(memory);
  vgpu_xts_crypt<<<blocks(batch->rows * 32), VGPU_XTS_THREADS>>>(memory);
  CHECK(cudaMemcpy(staged.data(), memory, staged.size(), cudaMemcpyDeviceToHost));
  uint64_t stamp = 0;
  std::memcpy(&stamp, staged.data() + VGPU_XTS_STAMP_OFFSET, sizeof stamp);
  EXPECT_EQ(stamp, 77u);
  for (size_t i = VGPU_XTS_DATA_OFFSET; i < staged.size(); i++) EXPECT_EQ(staged[i], expected[i]);
  CHECK(cudaFree(memory));
  return passed();
}
