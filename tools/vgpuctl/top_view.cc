#include "tools/vgpuctl/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "backend/control/vgpu_spec.h"
#include "tools/vgpuctl/output.h"
#include "tools/vgpuctl/top_table.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

constexpr size_t kNameLeast = 14;  // columns for names; longer names get what is left over
constexpr int kLeastWanted = 12;   // the highest rank of a column
constexpr size_t kAround = 4;      // lines that are not a virtual GPU's: title, totals, heading, footer

constexpr const char* kComputeUse = "/engines/compute/use_percent";

struct Column {
  const char* title;
  size_t width;
  int rank;  // those of a higher rank are left out first
  const char* pointer;
  std::string (*text)(const json& value);
  char sort = 0;               // the key that sorts by it; 0: none does
  const char* sorted_by = "";  // in words
};

std::string one_decimal(const json& value) {
  return value.is_number() ? fmt::format("{:.1f}", value.get<double>()) : "-";
}
std::string whole(const json& value) { return value.is_number() ? fmt::format("{:.0f}", value.get<double>()) : "-"; }
std::string milliseconds(const json& value) {
  return value.is_number() ? fmt::format("{:.2f}", value.get<double>()) : "-";
}
std::string bytes(const json& value) {
  return value.is_number() ? format_size(static_cast<uint64_t>(std::max(0.0, value.get<double>()))) : "-";
}
std::string word(const json& value) { return value.is_string() ? value.get<std::string>() : "-"; }

// In the order in which they stand, after the name.
constexpr Column kColumns[] = {
    {"GPU", 8, 12, "/device", word},
    {"COMPUTE%", 9, 0, kComputeUse, one_decimal, 'c', "use of compute"},
    {"SHARE", 5, 1, "/engines/compute/share_percent", whole, 's', "share of compute"},
    {"WAIT ms", 7, 2, "/engines/compute/wait_ms", milliseconds, 'w', "wait for compute"},
    {"IN%", 5, 3, "/engines/copy_in/use_percent", one_decimal, 'i', "use of copy in"},
    {"WAIT ms", 7, 10, "/engines/copy_in/wait_ms", milliseconds},
    {"OUT%", 5, 3, "/engines/copy_out/use_percent", one_decimal, 'o', "use of copy out"},
    {"WAIT ms", 7, 10, "/engines/copy_out/wait_ms", milliseconds},
    {"SHARE", 5, 9, "/engines/copy_in/share_percent", whole},
    {"MEMORY", 10, 2, "/memory_used", bytes, 'm', "memory"},
    {"OF", 10, 8, "/memory", bytes},
    {"MEM%", 4, 5, "/memory_percent", whole},
    {"CALLS/S", 7, 7, "/calls_per_s", rate_text},
    {"LAUNCH/S", 8, 4, "/launches_per_s", rate_text, 'l', "launches"},
    {"ERRORS/S", 8, 11, "/errors_per_s", rate_text},
    {"PROC", 4, 6, "/processes", whole, 'p', "processes"},
    {"STATE", 10, 7, "/state", word},
};

json value_at(const json& object, const char* pointer) {
  const json::json_pointer path(pointer);
  return object.contains(path) ? object[path] : json();
}

std::string name_of(const json& vgpu) { return word(value_at(vgpu, "/name")); }

bool fits(const Column& column, int rank) { return column.rank <= rank; }

size_t width_of(int rank) {
  size_t width = 0;
  for (const Column& column : kColumns) width += fits(column, rank) ? column.width + 1 : 0;
  return width;
}

// The highest rank of which all columns fit beside the names.
int rank_for(size_t columns) {
  int rank = 0;
  for (int next = 1; next <= kLeastWanted && kNameLeast + width_of(next) <= columns; ++next) rank = next;
  return rank;
}

std::string cut(std::string text, size_t width) {
  if (text.size() <= width) return text;
  text.resize(width);
  if (width > 0) text.back() = '~';
  return text;
}

bool is_suspended(const json& vgpu) { return value_at(vgpu, "/state") == kSuspended; }
bool is_asleep(const json& vgpu) { return value_at(vgpu, "/state") == kAsleep; }

// One that is suspended or asleep says so where all others say how busy they are: that column is always in view.
std::string cell(const json& vgpu, const Column& column) {
  if (column.pointer == kComputeUse && is_suspended(vgpu)) return kSuspended;
  if (column.pointer == kComputeUse && is_asleep(vgpu)) return kAsleep;
  return column.text(value_at(vgpu, column.pointer));
}

std::string vgpu_line(const std::string& name, size_t name_width, int rank, const json* vgpu) {
  std::string text = fmt::format("{:<{}}", cut(name, name_width), name_width);
  for (const Column& column : kColumns) {
    if (!fits(column, rank)) continue;
    text += fmt::format(" {:>{}}", vgpu ? cell(*vgpu, column) : column.title, column.width);
  }
  return text;
}

double sum(const json& vgpus, const char* pointer) {
  double total = 0;
  for (const json& vgpu : vgpus) {
    if (const json value = value_at(vgpu, pointer); value.is_number()) total += value.get<double>();
  }
  return total;
}

std::string totals(const json& vgpus) {
  const auto count = [&vgpus](bool (*is)(const json&), const char* word) {
    const auto number = std::count_if(vgpus.begin(), vgpus.end(), is);
    return number ? fmt::format(", {} {}", number, word) : "";
  };
  return fmt::format("all: compute {:.1f} %, copy in {:.1f} %, copy out {:.1f} %, memory {}{}", sum(vgpus, kComputeUse),
                     sum(vgpus, "/engines/copy_in/use_percent"), sum(vgpus, "/engines/copy_out/use_percent"),
                     bytes(sum(vgpus, "/memory_used")), count(is_suspended, kSuspended) + count(is_asleep, kAsleep));
}

const Column* sorted_column(char key) {
  const auto* found =
      std::find_if(std::begin(kColumns), std::end(kColumns), [key](const Column& c) { return c.sort == key; });
  return found == std::end(kColumns) ? nullptr : found;
}

// By name, vm-2 before vm-10; or by a column's number, the largest first.
void sort(std::vector<json>* vgpus, char key) {
  std::sort(vgpus->begin(), vgpus->end(), name_less);
  const Column* column = sorted_column(key);
  if (!column) return;
  const auto number = [column](const json& vgpu) {
    const json value = value_at(vgpu, column->pointer);
    return value.is_number() ? value.get<double>() : -std::numeric_limits<double>::infinity();
  };
  std::stable_sort(vgpus->begin(), vgpus->end(), [&](const json& a, const json& b) { return number(a) > number(b); });
}

}  // namespace

bool TopView::press(KeyPress press) {
  switch (press.key) {
    case Key::kQuit:
      return false;
    case Key::kUp:
      first_ -= std::min<size_t>(first_, 1);
      return true;
    case Key::kDown:
      ++first_;
      return true;
    case Key::kPageUp:
      first_ -= std::min(first_, page_);
      return true;
    case Key::kPageDown:
      first_ += page_;
      return true;
    case Key::kHome:
      first_ = 0;
      return true;
    case Key::kEnd:
      first_ = std::numeric_limits<size_t>::max() / 2;
      return true;
    default:
      break;
  }
  if (editing_) {
    edit(press);
    return true;
  }
  if (press.key == Key::kEscape) filter_.clear();
  if (press.key != Key::kCharacter) return true;
  if (press.character == 'q' || press.character == 'Q') return false;
  command(press.character);
  return true;
}

void TopView::edit(KeyPress press) {
  if (press.key == Key::kEscape) filter_.clear();
  if (press.key == Key::kEscape || press.key == Key::kEnter) editing_ = false;
  if (press.key == Key::kBackspace && !filter_.empty()) filter_.pop_back();
  if (press.key == Key::kCharacter) filter_ += press.character;
  first_ = 0;
}

void TopView::command(char character) {
  if (character == '/') editing_ = true;
  if (character == 'r') reverse_ = !reverse_;
  if (character == 'n' || sorted_column(character)) {
    sort_ = character;
    reverse_ = false;
    first_ = 0;
  }
}

std::string TopView::footer(size_t matches, size_t total, size_t columns) const {
  if (editing_) return fmt::format("filter: {}_   enter: keep, escape: all", filter_);
  std::string text = fmt::format("{}-{} of {}", matches ? first_ + 1 : 0, std::min(first_ + page_, matches), matches);
  if (!filter_.empty()) text += fmt::format(" with '{}' (of {})", filter_, total);
  const Column* column = sorted_column(sort_);
  text += fmt::format(", by {}{}", column ? column->sorted_by : "name", reverse_ ? " reversed" : "");
  const char* hints = "";
  for (const char* shorter : {"   q quit  / filter  r reverse  sort: n c s w i o m l p",
                              "  q quit  / filter  r reverse  sort: ncswiomlp", "  q / r ncswiomlp"}) {
    hints = shorter;
    if (text.size() + std::strlen(hints) <= columns) break;
  }
  return text + hints;
}

std::vector<Line> TopView::lines(const json& status, const json& rates, size_t rows, size_t columns) {
  std::vector<json> vgpus;
  size_t longest = std::strlen("NAME");
  for (json vgpu : rates["vgpus"]) {
    if (name_of(vgpu).find(filter_) == std::string::npos) continue;
    const json used = value_at(vgpu, "/memory_used"), share = value_at(vgpu, "/memory");
    if (used.is_number() && share.is_number() && share.get<double>() > 0) {
      vgpu["memory_percent"] = 100 * used.get<double>() / share.get<double>();
    }
    longest = std::max(longest, name_of(vgpu).size());
    vgpus.push_back(std::move(vgpu));
  }
  sort(&vgpus, sort_);
  if (reverse_) std::reverse(vgpus.begin(), vgpus.end());
  page_ = rows > kAround ? rows - kAround : 1;
  first_ = std::min(first_, vgpus.size() > page_ ? vgpus.size() - page_ : 0);

  const int rank = rank_for(columns);
  const size_t others = width_of(rank);
  const size_t name_width = std::min(longest, columns > others + kNameLeast ? columns - others : kNameLeast);
  std::vector<Line> lines = {{device_line(status), Line::Style::kTitle},
                             {totals(rates["vgpus"]), Line::Style::kPlain},
                             {vgpu_line("NAME", name_width, rank, nullptr), Line::Style::kHeading}};
  for (size_t i = first_; i < std::min(vgpus.size(), first_ + page_); ++i) {
    lines.push_back({vgpu_line(name_of(vgpus[i]), name_width, rank, &vgpus[i]), Line::Style::kPlain});
  }
  if (lines.size() + 1 < rows) lines.resize(rows - 1);
  lines.push_back({footer(vgpus.size(), rates["vgpus"].size(), columns), Line::Style::kFooter});
  if (lines.size() > rows) lines.resize(rows);
  for (Line& line : lines) {
    if (line.text.size() > columns) line.text.resize(columns);
  }
  return lines;
}

}  // namespace bandsaw::ctl
