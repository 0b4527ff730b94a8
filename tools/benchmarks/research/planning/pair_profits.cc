#include "tools/benchmarks/research/planning/pair_profits.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "memory/base/json.h"

namespace bandsaw::research {
namespace {

using nlohmann::json;

constexpr size_t kBytesMost = 4 << 20, kPairsMost = 1 << 14;
constexpr int kResidentMost = 128;
constexpr double kSpeedMost = 4;

bool read_pair(const json& row, PairProfit* pair) {
  const auto text = [&row](const char* key, std::string* out) {
    if (!row.contains(key) || !row[key].is_string()) return false;
    *out = row[key].get<std::string>();
    return !out->empty();
  };
  const auto number = [&row](const char* key, double least, double most, double* out) {
    if (!row.contains(key) || !row[key].is_number()) return false;
    *out = row[key].get<double>();
    return std::isfinite(*out) && *out >= least && *out <= most;
  };
  double resident_a = 0, resident_b = 0;
  const bool good =
      row.is_object() && text("a", &pair->a) && text("b", &pair->b) &&
      number("resident_a", 1, kResidentMost, &resident_a) && number("resident_b", 1, kResidentMost, &resident_b) &&
      number("speed_a", 0, kSpeedMost, &pair->speed_a) && number("speed_b", 0, kSpeedMost, &pair->speed_b);
  pair->resident_a = static_cast<int>(resident_a);
  pair->resident_b = static_cast<int>(resident_b);
  return good;
}

}  // namespace

Result<std::vector<PairProfit>> load_profits(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Status::error(ENOENT, "cannot read the profits of pairs in {}", path);
  if (text.str().size() > kBytesMost) return Status::error(EINVAL, "{}: more than {} bytes", path, kBytesMost);
  const json found = parse_json(text.str());
  if (!found.is_object() || !found.contains("pairs") || !found["pairs"].is_array() ||
      found["pairs"].size() > kPairsMost) {
    return Status::error(EINVAL, "{}: is to be an object with up to {} 'pairs'", path, kPairsMost);
  }
  std::vector<PairProfit> pairs;
  for (const json& row : found["pairs"]) {
    if (!read_pair(row, &pairs.emplace_back())) {
      return Status::error(EINVAL, "{}: pair {} makes no sense: {}", path, pairs.size(), json_text(row).substr(0, 200));
    }
  }
  return pairs;
}

}  // namespace bandsaw::research
