#include "guest-driver/libcuda/core/md2.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "guest-driver/libcuda/core/export_tables.h"

namespace bandsaw::libcuda {
namespace {

std::span<const uint8_t> bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", byte);
    text += two;
  }
  return text;
}

// RFC 1319, appendix A.5.
TEST(Md2, TestSuiteOfTheRfc) {
  EXPECT_EQ(hex(md2({})), "8350e5a3e24c153df2275c9f80692773");
  EXPECT_EQ(hex(md2(bytes("a"))), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  EXPECT_EQ(hex(md2(bytes("abc"))), "da853b0d3f88d99b30283a69e6ded6bb");
  EXPECT_EQ(hex(md2(bytes("message digest"))), "ab4f496bfb2a530b219ff33031fe06b0");
  EXPECT_EQ(hex(md2(bytes("abcdefghijklmnopqrstuvwxyz"))), "4e8ddff3650292ab5a4108c3aa47940b");
}

// RFC 2104, written out.
TEST(Md2, Hmac) {
  std::array<uint8_t, 16> key;
  for (size_t i = 0; i < key.size(); i++) key[i] = static_cast<uint8_t>(i);
  std::vector<uint8_t> inner, outer;
  for (const uint8_t byte : key) inner.push_back(byte ^ 0x36), outer.push_back(byte ^ 0x5c);
  for (const char c : std::string_view("message")) inner.push_back(static_cast<uint8_t>(c));
  const Digest first = md2(inner);
  outer.insert(outer.end(), first.begin(), first.end());
  EXPECT_EQ(hmac_md2(key, bytes("message")), md2(outer));
}

TEST(Integrity, FixedAnswersOfARealDriver) {
  uint64_t out[2] = {};
  EXPECT_EQ(answer_integrity(13000, 1, {}, out), CUDA_SUCCESS);
  EXPECT_EQ(out[0], 0x3341181c03cb675cu);
  EXPECT_EQ(out[1], 0x8ed383aa1f4cd1e8u);
  EXPECT_EQ(answer_integrity(13001, 1, {}, out), CUDA_SUCCESS);
  EXPECT_EQ(out[0], 0x1841181c03cb675cu);
  EXPECT_EQ(out[1], 0x8ed383aa1f4cd1e8u);
}

TEST(Integrity, CoversTheTime) {
  uint64_t first[2] = {}, second[2] = {};
  EXPECT_EQ(answer_integrity(13002, 1, {}, first), CUDA_SUCCESS);
  EXPECT_EQ(answer_integrity(13002, 2, {}, second), CUDA_SUCCESS);
  EXPECT_NE(first[0], second[0]);
}

}  // namespace
}  // namespace bandsaw::libcuda
