#include "guest-driver/libcuda/core/driver_log.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

// cuda.h names it; what is in it is ours.
struct CUlogsCallbackEntry_st {
  CUlogsCallback function = nullptr;
  void* data = nullptr;
};

namespace bandsaw::libcuda {
namespace {

constexpr size_t kBytesMost = 25600;  // as the driver keeps
constexpr std::string_view kTruncated = "[older messages are lost]\n";

struct DriverLog {
  std::mutex mutex;
  std::deque<std::string> lines;  // each with its newline
  size_t bytes = 0;
  CUlogIterator first = 0;  // the number of lines.front()
  std::vector<CUlogsCallbackEntry_st*> callbacks;
};

// Leaked: used after static destructors.
DriverLog& driver_log() {
  static auto* const created = new DriverLog;
  return *created;
}

struct Dump {
  std::vector<std::string> lines;
  CUlogIterator end = 0;
  size_t bytes() const {
    size_t sum = 0;
    for (const std::string& line : lines) sum += line.size();
    return sum;
  }
};

// The lines from `*from` on (all, if it is null), with a note in front if some are gone.
Dump take(const CUlogIterator* from) {
  DriverLog& log = driver_log();
  std::lock_guard lock(log.mutex);
  Dump dump;
  dump.end = log.first + static_cast<CUlogIterator>(log.lines.size());
  const CUlogIterator begin = from ? *from : log.first;
  const bool lost = from ? begin < log.first : log.first != 0;
  const size_t skip = begin > log.first ? std::min<size_t>(begin - log.first, log.lines.size()) : 0;
  if (lost) dump.lines.emplace_back(kTruncated);
  dump.lines.insert(dump.lines.end(), log.lines.begin() + static_cast<ptrdiff_t>(skip), log.lines.end());
  return dump;
}

// Keeps the newest lines that fit, under the note.
bool shorten(Dump* dump, size_t room) {
  if (dump->bytes() <= room) return true;
  if (dump->lines.front() == kTruncated) dump->lines.erase(dump->lines.begin());
  while (!dump->lines.empty() && dump->bytes() + kTruncated.size() > room) dump->lines.erase(dump->lines.begin());
  if (dump->lines.empty()) return false;
  dump->lines.insert(dump->lines.begin(), std::string(kTruncated));
  return true;
}

}  // namespace

void keep_driver_log(CUlogLevel level, std::string_view line) {
  DriverLog& log = driver_log();
  std::vector<CUlogsCallbackEntry_st> callbacks;
  {
    std::lock_guard lock(log.mutex);
    log.lines.emplace_back(std::string(line) + "\n");
    log.bytes += line.size() + 1;
    while (log.bytes > kBytesMost && log.lines.size() > 1) {
      log.bytes -= log.lines.front().size();
      log.lines.pop_front();
      log.first++;
    }
    for (const CUlogsCallbackEntry_st* entry : log.callbacks) callbacks.push_back(*entry);
  }
  std::string message(line);
  for (const CUlogsCallbackEntry_st& entry : callbacks)
    entry.function(entry.data, level, message.data(), message.size());
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuLogsRegisterCallback(CUlogsCallback function, void* data, CUlogsCallbackHandle* handle) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  auto* const entry = new CUlogsCallbackEntry_st{function, data};
  std::lock_guard lock(driver_log().mutex);
  driver_log().callbacks.push_back(entry);
  if (handle) *handle = entry;
  return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
  DriverLog& log = driver_log();
  std::lock_guard lock(log.mutex);
  const auto found = std::find(log.callbacks.begin(), log.callbacks.end(), handle);
  if (!handle || found == log.callbacks.end()) return CUDA_ERROR_INVALID_VALUE;
  delete *found;
  log.callbacks.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuLogsCurrent(CUlogIterator* iterator, unsigned flags) {
  if (!iterator || flags) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(driver_log().mutex);
  *iterator = driver_log().first + static_cast<CUlogIterator>(driver_log().lines.size());
  return CUDA_SUCCESS;
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* path, unsigned flags) {
  if (!path || flags) return CUDA_ERROR_INVALID_VALUE;
  const Dump dump = take(iterator);
  FILE* const file = std::fopen(path, "we");
  if (!file) return CUDA_ERROR_INVALID_VALUE;
  bool written = true;
  for (const std::string& line : dump.lines) written &= std::fwrite(line.data(), 1, line.size(), file) == line.size();
  written &= std::fclose(file) == 0;
  if (written && iterator) *iterator = dump.end;
  return written ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size, unsigned flags) {
  if (!buffer || !size || !*size || flags) return CUDA_ERROR_INVALID_VALUE;
  Dump dump = take(iterator);
  const bool fits = shorten(&dump, *size - 1);
  *size = 0;
  if (!fits) return CUDA_ERROR_INVALID_VALUE;
  for (const std::string& line : dump.lines) {
    std::memcpy(buffer + *size, line.data(), line.size());
    *size += line.size();
  }
  buffer[*size] = 0;
  if (iterator) *iterator = dump.end;
  return CUDA_SUCCESS;
}

}  // extern "C"
