#include "guest-driver/libcuda/api/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>

namespace bandsaw::libcuda {
namespace {

// Rows of streams come after those of threads.
constexpr uint64_t kFirstStreamRow = uint64_t{1} << 31;
constexpr size_t kBufferBytes = 64 << 10;

std::string with_pid(std::string path) {
  if (const size_t at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  return path;
}

// Names of kernels come from images, so anything may be in them.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  char escaped[8];
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      result += c;
    } else {
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
      result += escaped;
    }
  }
  return result + '"';
}

// The format counts in microseconds.
std::string microseconds(uint64_t ns) {
  char text[40];
  std::snprintf(text, sizeof(text), "%" PRIu64 ".%03u", ns / 1000, static_cast<unsigned>(ns % 1000));
  return text;
}

std::string member(const char* name, uint64_t value) {
  return std::string(",\"") + name + "\":" + std::to_string(value);
}

std::string span(const std::string& name, uint64_t row, uint64_t begin_ns, uint64_t end_ns) {
  const uint64_t length = end_ns > begin_ns ? end_ns - begin_ns : 0;
  return "{\"ph\":\"X\",\"name\":" + quoted(name) + member("pid", static_cast<uint64_t>(getpid())) +
         member("tid", row) + ",\"ts\":" + microseconds(begin_ns) + ",\"dur\":" + microseconds(length);
}

// One end of an arrow: "s" begins it, "f" ends it.
std::string arrow(const char* end, uint64_t id, uint64_t row, uint64_t at_ns) {
  return std::string("{\"ph\":\"") + end + "\",\"bp\":\"e\",\"cat\":\"issue\",\"name\":\"issue\"" + member("id", id) +
         member("pid", static_cast<uint64_t>(getpid())) + member("tid", row) + ",\"ts\":" + microseconds(at_ns) + "}";
}

}  // namespace

bool TraceFile::open(const std::string& path) {
  pid_ = getpid();
  file_ = ::open(with_pid(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) return false;
  text_ = "[";
  line("{\"ph\":\"M\",\"name\":\"process_name\"" + member("pid", static_cast<uint64_t>(getpid())) +
       ",\"args\":{\"name\":" + quoted(program_invocation_short_name) + "}}");
  return true;
}

bool TraceFile::is_open() const { return file_ >= 0 && getpid() == pid_; }

void TraceFile::line(const std::string& json) {
  text_ += first_ ? "\n" : ",\n";
  text_ += json;
  first_ = false;
  if (text_.size() > kBufferBytes) write_out();
}

void TraceFile::write_out() {
  for (size_t done = 0; done < text_.size();) {
    const ssize_t count = write(file_, text_.data() + done, text_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;  // a full disk costs the trace, not the program
    done += static_cast<size_t>(count);
  }
  text_.clear();
}

void TraceFile::name_row(uint64_t row, const std::string& name) {
  if (named_[row]) return;
  named_[row] = true;
  line("{\"ph\":\"M\",\"name\":\"thread_name\"" + member("pid", static_cast<uint64_t>(getpid())) + member("tid", row) +
       ",\"args\":{\"name\":" + quoted(name) + "}}");
}

uint64_t TraceFile::row_of_stream(uint64_t stream) {
  const auto [found, added] = stream_rows_.try_emplace(stream, kFirstStreamRow + stream_rows_.size());
  if (added) {
    const auto number = std::to_string(stream_rows_.size() - 1);
    name_row(found->second, stream <= 1   ? "device: default stream"
                            : stream == 2 ? "device: per-thread default streams"
                                          : "device: stream " + number);
  }
  return found->second;
}

void TraceFile::call(const char* name, uint64_t begin_ns, uint64_t end_ns, uint64_t id) {
  const auto thread = static_cast<uint64_t>(gettid());
  std::lock_guard lock(mutex_);
  if (!is_open()) return;
  name_row(thread, "thread " + std::to_string(thread));
  line(span(name, thread, begin_ns, end_ns) + "}");
  if (id) line(arrow("s", id, thread, begin_ns));
}

void TraceFile::work(uint64_t stream, const std::string& name, uint64_t begin_ns, uint64_t end_ns, uint64_t id,
                     uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (!is_open()) return;
  const uint64_t row = row_of_stream(stream);
  line(span(name, row, begin_ns, end_ns) + (bytes ? ",\"args\":{\"bytes\":" + std::to_string(bytes) + "}}" : "}"));
  line(arrow("f", id, row, begin_ns));
}

void TraceFile::note(const std::string& text, uint64_t at_ns) {
  std::lock_guard lock(mutex_);
  if (!is_open()) return;
  line("{\"ph\":\"i\",\"s\":\"p\",\"name\":" + quoted(text) + member("pid", static_cast<uint64_t>(getpid())) +
       member("tid", static_cast<uint64_t>(gettid())) + ",\"ts\":" + microseconds(at_ns) + "}");
}

void TraceFile::flush() {
  std::lock_guard lock(mutex_);
  if (is_open()) write_out();
}

void TraceFile::close() {
  std::lock_guard lock(mutex_);
  if (!is_open()) return;
  text_ += "\n]\n";
  write_out();
  ::close(file_);
  file_ = -1;
}

}  // namespace bandsaw::libcuda
