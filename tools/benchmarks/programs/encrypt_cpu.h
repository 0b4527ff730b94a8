// AES-256-XTS on one core, in two ways: with tables, as kernels do without AES instructions, and with these. Both take
// the key schedules that the virtual GPU takes.
#pragma once

#include <emmintrin.h>
#include <wmmintrin.h>

#include <cstdint>
#include <cstring>

namespace on_cpu {

// FIPS 197, with words in little endian order; `data` is what the direction needs.
inline void expand(const uint8_t* key, uint32_t enc[60]) {
  std::memcpy(enc, key, 32);
  uint8_t constant = 1;
  const auto substitute = [](uint32_t word) {
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= uint32_t{vgpu_xts::kTables.box[word >> 8 * i & 0xff]} << 8 * i;
    return out;
  };
  for (int i = 8; i < 60; i++) {
    uint32_t word = enc[i - 1];
    if (i % 8 == 0) {
      word = substitute(word >> 8 | word << 24) ^ constant;
      constant = static_cast<uint8_t>(constant << 1);
    } else if (i % 8 == 4) {
      word = substitute(word);
    }
    enc[i] = enc[i - 8] ^ word;
  }
}

inline void invert(const uint32_t enc[60], uint32_t dec[60]) {
  for (int round = 0; round <= 14; round++) {
    __m128i key = _mm_loadu_si128(reinterpret_cast<const __m128i*>(enc + 4 * (14 - round)));
    if (round > 0 && round < 14) key = _mm_aesimc_si128(key);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dec + 4 * round), key);
  }
}

inline vgpu_xts_key make_key(const uint8_t bytes[64], bool decrypt) {
  vgpu_xts_key key{};
  uint32_t enc[60];
  expand(bytes, enc);
  expand(bytes + 32, key.tweak);
  if (decrypt)
    invert(enc, key.data);
  else
    std::memcpy(key.data, enc, sizeof enc);
  key.rounds = 14;
  key.decrypt = decrypt;
  return key;
}

struct Block {
  uint64_t low, high;
};

inline Block next_tweak(Block tweak) {
  return {tweak.low << 1 ^ (tweak.high >> 63) * 0x87, tweak.high << 1 | tweak.low >> 63};
}

template <int kStep>
inline void tables_block(const uint32_t* table, const uint8_t* box, const uint32_t* key, uint32_t s[4]) {
  const auto byte = [](uint32_t word, int i) { return word >> 8 * i & 0xff; };
  const auto turned = [](uint32_t word, int bytes) { return word << 8 * bytes | word >> (32 - 8 * bytes); };
  for (int i = 0; i < 4; i++) s[i] ^= key[i];
  uint32_t t[4];
  for (int round = 1; round < 14; round++) {
    key += 4;
    for (int i = 0; i < 4; i++) {
      t[i] = table[byte(s[i], 0)] ^ turned(table[byte(s[(i + kStep) & 3], 1)], 1) ^
             turned(table[byte(s[(i + 2) & 3], 2)], 2) ^ turned(table[byte(s[(i + 3 * kStep) & 3], 3)], 3) ^ key[i];
    }
    std::memcpy(s, t, sizeof t);
  }
  key += 4;
  for (int i = 0; i < 4; i++) {
    t[i] = (box[byte(s[i], 0)] | uint32_t{box[byte(s[(i + kStep) & 3], 1)]} << 8 |
            uint32_t{box[byte(s[(i + 2) & 3], 2)]} << 16 | uint32_t{box[byte(s[(i + 3 * kStep) & 3], 3)]} << 24) ^
           key[i];
  }
  std::memcpy(s, t, sizeof t);
}

struct ByTables {
  static void run(const uint32_t* key, bool decrypt, Block* block) {
    uint32_t state[4];
    std::memcpy(state, block, sizeof state);
    const auto& tables = vgpu_xts::kTables;
    if (decrypt)
      tables_block<3>(tables.decrypt, tables.inverse_box, key, state);
    else
      tables_block<1>(tables.encrypt, tables.box, key, state);
    std::memcpy(block, state, sizeof state);
  }
};

struct ByInstructions {
  static void run(const uint32_t* key, bool decrypt, Block* block) {
    const auto* const keys = reinterpret_cast<const __m128i*>(key);
    __m128i state = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)), _mm_loadu_si128(keys));
    for (int round = 1; round < 14; round++) {
      const __m128i part = _mm_loadu_si128(keys + round);
      state = decrypt ? _mm_aesdec_si128(state, part) : _mm_aesenc_si128(state, part);
    }
    const __m128i last = _mm_loadu_si128(keys + 14);
    state = decrypt ? _mm_aesdeclast_si128(state, last) : _mm_aesenclast_si128(state, last);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block), state);
  }
};

// Whole blocks of one sector.
template <typename Way>
void crypt(const vgpu_xts_key& key, const uint8_t iv[16], const uint8_t* from, uint8_t* to, size_t bytes) {
  constexpr int kAtOnce = 8;  // independent of one another, for processors that have several under way
  Block tweak;
  std::memcpy(&tweak, iv, sizeof tweak);
  Way::run(key.tweak, false, &tweak);
  for (size_t at = 0; at < bytes; at += sizeof(Block) * kAtOnce) {
    Block blocks[kAtOnce], tweaks[kAtOnce];
    std::memcpy(blocks, from + at, sizeof blocks);
    for (int i = 0; i < kAtOnce; i++) {
      tweaks[i] = tweak;
      tweak = next_tweak(tweak);
    }
    for (int i = 0; i < kAtOnce; i++) blocks[i] = {blocks[i].low ^ tweaks[i].low, blocks[i].high ^ tweaks[i].high};
    for (int i = 0; i < kAtOnce; i++) Way::run(key.data, key.decrypt, &blocks[i]);
    for (int i = 0; i < kAtOnce; i++) blocks[i] = {blocks[i].low ^ tweaks[i].low, blocks[i].high ^ tweaks[i].high};
    std::memcpy(to + at, blocks, sizeof blocks);
  }
}

}  // namespace on_cpu
