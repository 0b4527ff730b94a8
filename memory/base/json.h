// JSON between text and nlohmann::json: the library's reader and writer are compiled here, once, and not by every
// caller.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace bandsaw {

// A discarded value (is_discarded()) if `text` is not JSON.
nlohmann::json parse_json(std::string_view text);
// On one line, or with `indent` spaces a level. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);
// What stands under `key`; empty: `object` is none, or has no text there.
std::string text_in(const nlohmann::json& object, const char* key);

}  // namespace bandsaw
