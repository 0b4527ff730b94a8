#include "backend/device/soft/printf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "backend/device/soft/block.h"
#include "backend/device/soft/fault.h"
#include "backend/device/soft/guest_pointer.h"

namespace bandsaw::soft {

namespace {

constexpr size_t kStringMax = 32 * 1024;
constexpr int kWidthMax = 4096;  // of a field; what a program asks beyond that is cut

constexpr size_t kPieceBytes = 64;  // of a string, read at once and at a multiple of it: pages end at one, too

// One conversion of the format, from '%' to its letter.
struct Conversion {
  std::string flags;
  int width = -1, precision = -1;
  enum { kInt, kChar, kShort, kLong, kLongLong } size = kInt;
  char letter = 0;
};

class Formatter {
 public:
  Formatter(const WarpState& warp, uint32_t lane, LaunchServices& services, std::span<const std::byte> arguments,
            std::string* text)
      : warp_(warp), lane_(lane), services_(services), arguments_(arguments), text_(text) {}

  bool run(std::string_view format);
  int32_t count() const { return count_; }

 private:
  template <typename T>
  T next() {
    offset_ = (offset_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value{};
    if (offset_ > arguments_.size() || arguments_.size() - offset_ < sizeof(T)) return value;
    std::memcpy(&value, arguments_.data() + offset_, sizeof value);
    offset_ += sizeof(T);
    return value;
  }
  size_t parse(std::string_view rest, Conversion* conversion);
  bool convert(const Conversion& conversion);
  void integer(const Conversion& conversion);
  bool string(const Conversion& conversion);
  bool read(uint64_t address, size_t max, std::string* found) const;
  const std::byte* find(uint64_t address, size_t bytes) const;
  template <typename T>
  void put(const Conversion& conversion, const char* size, char letter, T value);

  const WarpState& warp_;
  const uint32_t lane_;
  LaunchServices& services_;
  const std::span<const std::byte> arguments_;
  std::string* text_;
  size_t offset_ = 0;
  int32_t count_ = 0;
};

bool Formatter::run(std::string_view format) {
  while (!format.empty() && text_->size() < kPrintfMax) {
    const size_t percent = format.find('%');
    text_->append(format.substr(0, percent));
    if (percent == format.npos) break;
    format.remove_prefix(percent);
    Conversion conversion;
    const size_t used = parse(format.substr(1), &conversion) + 1;
    if (conversion.letter == 0) {  // not a conversion: as it stands
      text_->append(format.substr(0, used));
    } else if (!convert(conversion)) {
      return false;
    }
    format.remove_prefix(std::min(used, format.size()));
  }
  if (text_->size() > kPrintfMax) text_->resize(kPrintfMax);
  return true;
}

// Reads what follows a '%'; returns its length. Stars take their arguments at once.
size_t Formatter::parse(std::string_view rest, Conversion* conversion) {
  size_t i = 0;
  const auto peek = [&] { return i < rest.size() ? rest[i] : '\0'; };
  const auto number = [&](int* value) {
    if (peek() == '*') {
      ++i, ++count_;
      *value = next<int32_t>();
      return;
    }
    int read = 0;
    while (peek() >= '0' && peek() <= '9') read = std::min(kWidthMax, read * 10 + (rest[i++] - '0'));
    *value = read;
  };
  while (peek() && std::strchr("-+ #0", peek())) conversion->flags += rest[i++];
  if (peek() == '*' || (peek() >= '1' && peek() <= '9')) number(&conversion->width);
  if (conversion->width < -1) {
    conversion->flags += '-';
    conversion->width = -std::max(conversion->width, -kWidthMax);
  }
  if (peek() == '.') {
    ++i;
    number(&conversion->precision);
  }
  while (peek() && std::strchr("hljztL", peek())) {
    switch (rest[i++]) {
      case 'h':
        conversion->size = conversion->size == Conversion::kShort ? Conversion::kChar : Conversion::kShort;
        break;
      case 'l':
        conversion->size = conversion->size == Conversion::kLong ? Conversion::kLongLong : Conversion::kLong;
        break;
      case 'L':
        break;
      default:
        conversion->size = Conversion::kLongLong;
        break;
    }
  }
  if (peek() && std::strchr("diouxXcsfFeEgGaApn%", peek())) conversion->letter = rest[i++];
  conversion->width = std::min(conversion->width, kWidthMax);
  conversion->precision = std::min(conversion->precision, kWidthMax);
  conversion->flags.resize(std::min<size_t>(conversion->flags.size(), 8));
  return i;
}

template <typename T>
void Formatter::put(const Conversion& conversion, const char* size, char letter, T value) {
  char format[48];
  int at = std::snprintf(format, sizeof format, "%%%s", conversion.flags.c_str());
  const auto add = [&](const char* form, auto what) {
    at += std::snprintf(format + at, sizeof format - static_cast<size_t>(at), form, what);
  };
  if (conversion.width >= 0) add("%d", conversion.width);
  if (conversion.precision >= 0) add(".%d", conversion.precision);
  add("%s", size);
  add("%c", letter);
  char small[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int length = std::snprintf(small, sizeof small, format, value);
  if (length < 0) return;
  if (static_cast<size_t>(length) < sizeof small) {
    text_->append(small, static_cast<size_t>(length));
    return;
  }
  std::string large(static_cast<size_t>(length) + 1, '\0');
  std::snprintf(large.data(), large.size(), format, value);
#pragma GCC diagnostic pop
  text_->append(large.data(), static_cast<size_t>(length));
}

void Formatter::integer(const Conversion& conversion) {
  const bool is_signed = conversion.letter == 'd' || conversion.letter == 'i';
  const bool wide = conversion.size >= Conversion::kLong;
  long long value = wide ? next<int64_t>() : (is_signed ? next<int32_t>() : static_cast<long long>(next<uint32_t>()));
  if (conversion.size == Conversion::kShort)
    value = is_signed ? static_cast<int16_t>(value) : static_cast<uint16_t>(value);
  if (conversion.size == Conversion::kChar)
    value = is_signed ? static_cast<int8_t>(value) : static_cast<uint8_t>(value);
  put(conversion, "ll", conversion.letter, value);
}

// Null: nothing that the lane may read, as far as addresses tell.
const std::byte* Formatter::find(uint64_t address, size_t bytes) const {
  const Resolved found = find_bytes(warp_, lane_, address, bytes, AccessSpace::kGeneric, false);
  if (found.kind == Resolved::kOther) return static_cast<const std::byte*>(services_.visible_host(address, bytes));
  return found.kind == Resolved::kFound && (!found.local || bytes == 1) ? found.pointer : nullptr;
}

// The string at a generic address of the lane; false if it is nowhere.
bool Formatter::read(uint64_t address, size_t max, std::string* found) const {
  while (found->size() < max) {
    const uint64_t at = address + found->size();
    char piece[kPieceBytes];
    size_t bytes = std::min<size_t>(kPieceBytes - at % kPieceBytes, max - found->size());
    const std::byte* from = find(at, bytes);
    if (!from) from = find(at, bytes = 1);  // near an end, or in local memory
    if (!from || !copy_guarded(piece, from, bytes)) return false;
    const size_t length = ::strnlen(piece, bytes);
    found->append(piece, length);
    if (length < bytes) break;
  }
  return true;
}

bool Formatter::string(const Conversion& conversion) {
  const auto address = next<uint64_t>();
  std::string found;
  const size_t max = conversion.precision >= 0 ? static_cast<size_t>(conversion.precision) : kStringMax;
  if (address && !read(address, max, &found)) return false;
  put(conversion, "", 's', address ? found.c_str() : "(null)");
  return true;
}

bool Formatter::convert(const Conversion& conversion) {
  if (conversion.letter == '%') {
    *text_ += '%';
    return true;
  }
  ++count_;
  switch (conversion.letter) {
    case 'd':
    case 'i':
    case 'o':
    case 'u':
    case 'x':
    case 'X':
      integer(conversion);
      return true;
    case 'c':
      put(conversion, "", 'c', next<int32_t>());
      return true;
    case 's':
      return string(conversion);
    case 'p':
      put(conversion, "", 'p', reinterpret_cast<void*>(next<uint64_t>()));
      return true;
    case 'n':
      next<uint64_t>();
      return true;  // CUDA ignores it
    default:
      put(conversion, "", conversion.letter, next<double>());
      return true;
  }
}

}  // namespace

bool format_printf(const WarpState& warp, uint32_t lane, LaunchServices& services, std::string_view format,
                   std::span<const std::byte> arguments, std::string* text, int32_t* count) {
  Formatter formatter(warp, lane, services, arguments, text);
  if (!formatter.run(format.substr(0, kStringMax))) return false;
  *count = formatter.count();
  return true;
}

std::string format_assert(const WarpState& warp, uint32_t lane, const char* message, const char* file, uint32_t line,
                          const char* function) {
  lane %= kWarpLanes;
  return fmt::format("{}:{}: {}: block: [{},{},{}], thread: [{},{},{}] Assertion `{}` failed.\n", file, line, function,
                     warp.ctaid[0], warp.ctaid[1], warp.ctaid[2], warp.tid_x[lane], warp.tid_y[lane], warp.tid_z[lane],
                     message);
}

}  // namespace bandsaw::soft
