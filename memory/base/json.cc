#include "memory/base/json.h"

#include <nlohmann/json.hpp>

namespace bandsaw {

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text, nullptr, false); }

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_in(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace bandsaw
