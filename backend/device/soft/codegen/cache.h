// Object code on disk by content: a file per key, written whole or not at all, checked when read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device/code_keeper.h"

namespace bandsaw::soft {

// SHA-256 in hexadecimal of the parts, each with its length.
std::string content_key(const std::vector<std::string_view>& parts);
// What identifies this build of the compiler; empty when it cannot be told (then nothing may be cached).
std::string build_identity();

// Empty if absent, damaged, or not this user's alone (such a file is removed). With a keeper the file is the folder's
// owner's.
std::vector<char> cache_read(const std::string& directory, const std::string& key, CodeKeeper* keeper = nullptr);
// Failure is not an error: the next start compiles again. The folder has about `quota` bytes at most: what was not used
// for longest goes.
inline constexpr uint64_t kCacheQuota = 1 << 30;
void cache_write(const std::string& directory, const std::string& key, const std::vector<char>& object,
                 uint64_t quota = kCacheQuota);
// The same where somebody else writes.
void cache_hand_over(CodeKeeper* keeper, const std::string& key, const std::vector<char>& object);

}  // namespace bandsaw::soft
