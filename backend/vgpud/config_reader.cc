#include "backend/vgpud/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "backend/control/vgpu_spec.h"

namespace bandsaw {
namespace {

// Columns of the sample: where what is said of a key begins, and where it ends.
constexpr size_t kAboutColumn = 32, kWidth = 116;

std::string in_quotes(const std::string& text) { return fmt::format("\"{}\"", text); }

// `about` in lines of comments, the first of which goes on behind `line`.
std::string commented(std::string line, const std::string& about) {
  std::string done;
  line += std::string(line.size() < kAboutColumn ? kAboutColumn - line.size() : 1, ' ') + "#";
  for (size_t begin = 0; begin < about.size();) {
    const size_t space = about.find(' ', begin), end = std::min(space, about.size());
    if (line.size() + 1 + (end - begin) > kWidth) {
      done += line + "\n";
      line = "#" + std::string(kAboutColumn - 1, ' ') + "#  ";
    }
    line += " " + about.substr(begin, end - begin);
    begin = end + 1;
  }
  return done + line + "\n";
}

}  // namespace

void ConfigReader::text(const std::string& key, std::string* out, const std::string& about) {
  keys_.push_back({key, in_quotes(*out), about});
  const auto node = root_.at_path(key);
  if (!node) return;
  if (auto value = node.value<std::string>()) {
    *out = *value;
  } else {
    complain(key, "must be a text");
  }
}

void ConfigReader::size(const std::string& key, uint64_t* out, const std::string& about) {
  const auto node = root_.at_path(key);
  if (node && node.is_integer()) {
    keys_.push_back({key, in_quotes("auto"), about});
    *out = static_cast<uint64_t>(std::max<int64_t>(0, node.value_or<int64_t>(0)));
    return;
  }
  std::string value = "auto";
  text(key, &value, about);
  if (value.empty() || value == "auto") return;
  auto parsed = parse_size(value);
  if (!parsed.ok()) return complain(key, parsed.status().message());
  *out = parsed.value();
}

void ConfigReader::number(const std::string& key, int64_t limit, uint32_t* out, const std::string& about) {
  keys_.push_back({key, fmt::to_string(*out), about});
  const auto node = root_.at_path(key);
  if (!node) return;
  const auto value = node.value<int64_t>();
  if (!value || *value < 0 || *value > limit) return complain(key, fmt::format("must be 0 to {}", limit));
  *out = static_cast<uint32_t>(*value);
}

void ConfigReader::flag(const std::string& key, std::optional<bool>* out, bool usual, const std::string& about) {
  keys_.push_back({key, usual ? "true" : "false", about});
  const auto node = root_.at_path(key);
  if (!node) return;
  if (!node.is_boolean()) return complain(key, "must be true or false");
  *out = *node.value<bool>();
}

void ConfigReader::time(const std::string& key, int64_t unit_ns, int64_t least, int64_t limit, int64_t* out,
                        const std::string& about) {
  int64_t value = *out / unit_ns;
  whole(key, least, limit, &value, about);
  *out = value * unit_ns;
}

void ConfigReader::whole(const std::string& key, int64_t least, int64_t limit, int64_t* out, const std::string& about) {
  keys_.push_back({key, fmt::to_string(*out), about});
  const auto node = root_.at_path(key);
  if (!node) return;
  const auto value = node.is_integer() ? node.value<int64_t>() : std::nullopt;
  if (!value || *value < least || *value > limit) return complain(key, fmt::format("must be {} to {}", least, limit));
  *out = *value;
}

void ConfigReader::mode(const std::string& key, std::string* out, const std::string& about) {
  text(key, out, about);
  const bool octal = !out->empty() && out->size() <= 4 &&
                     std::all_of(out->begin(), out->end(), [](char c) { return c >= '0' && c <= '7'; });
  if (!octal) complain(key, "must be an octal mode like \"0660\"");
}

void ConfigReader::elsewhere(const std::string& key, const std::string& value, const std::string& about) {
  keys_.push_back({key, value, about});
}

void ConfigReader::check(const std::string& key, const Status& status) {
  if (!status.ok()) complain(key, "is wrong: " + status.message());
}

// A misspelt key would otherwise be a silent default.
Status ConfigReader::finish() {
  for (const auto& [key, value] : root_) {
    if (key.str() != "lab" && key.str() != "devices") check_known(std::string(key.str()), value);
  }
  return status_;
}

void ConfigReader::check_known(const std::string& key, const toml::node& value) {
  if (const toml::table* table = value.as_table()) {
    for (const auto& [inner, node] : *table) check_known(key + "." + std::string(inner.str()), node);
  } else if (std::none_of(keys_.begin(), keys_.end(), [&](const ConfigKey& known) { return known.key == key; })) {
    complain(key, "is not known", &value);
  }
}

void ConfigReader::complain(const std::string& key, const std::string& why, const toml::node* where) {
  if (!status_.ok()) return;
  if (!where) where = root_.at_path(key).node();
  status_ = Status::error(EINVAL, "{}: '{}' {}", where ? place(path_, where->source()) : path_, key, why);
}

std::string place(const std::string& path, const toml::source_region& where) {
  return fmt::format("{}:{}:{}", path, where.begin.line, where.begin.column);
}

std::string sample_config(const std::vector<ConfigKey>& keys) {
  std::string text, table;
  for (const ConfigKey& key : keys) {
    if (key.about.empty()) continue;
    const size_t dot = key.key.find('.');
    const std::string in = dot == std::string::npos ? "" : key.key.substr(0, dot);
    if (in != table) text += fmt::format("\n[{}]\n", in);
    table = in;
    text += commented(fmt::format("#{} = {}", key.key.substr(dot == std::string::npos ? 0 : dot + 1), key.value),
                      key.about);
  }
  return text;
}

}  // namespace bandsaw
