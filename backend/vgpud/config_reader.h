// Reads keys of vgpud's configuration, and knows what it has read: a key that nobody asked for is misspelt, and the
// list of the keys, with what each says, is the sample configuration and the manual page.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw {

struct ConfigKey {
  std::string key;    // "table.name", or "name" in front of all tables
  std::string value;  // the built-in one, as TOML has it
  std::string about;  // in a few words; empty: a key of earlier versions, which is read and not shown
};

// Each call reads one key into `*out`, which holds the built-in value before, and keeps it if the key is not there.
// The first that is wrong makes finish() fail.
class ConfigReader {
 public:
  // `path` is the file's, for messages. `root` outlives this.
  ConfigReader(const toml::table& root, std::string path) : root_(root), path_(std::move(path)) {}

  void text(const std::string& key, std::string* out, const std::string& about);
  // Bytes: a number, or a text like "16G"; 0 is "auto".
  void size(const std::string& key, uint64_t* out, const std::string& about);
  // 0 to `limit`.
  void number(const std::string& key, int64_t limit, uint32_t* out, const std::string& about);
  void flag(const std::string& key, std::optional<bool>* out, bool usual, const std::string& about);
  // A time in a whole number of units of `unit_ns`.
  void time(const std::string& key, int64_t unit_ns, int64_t least, int64_t limit, int64_t* out,
            const std::string& about);
  void whole(const std::string& key, int64_t least, int64_t limit, int64_t* out, const std::string& about);
  // An octal mode of a file.
  void mode(const std::string& key, std::string* out, const std::string& about);
  // A key that others read.
  void elsewhere(const std::string& key, const std::string& value, const std::string& about);
  // What was read for `key` is wrong, unless `status` is ok.
  void check(const std::string& key, const Status& status);

  // Names the first key that is wrong or not known.
  Status finish();
  // All that were asked for, in that order.
  const std::vector<ConfigKey>& keys() const { return keys_; }

 private:
  void check_known(const std::string& key, const toml::node& value);
  // `where`: null for the key's value.
  void complain(const std::string& key, const std::string& why, const toml::node* where = nullptr);

  const toml::table& root_;
  const std::string path_;
  std::vector<ConfigKey> keys_;
  Status status_;
};

// "vgpud.toml:3:7": line and column.
std::string place(const std::string& path, const toml::source_region& where);

// All keys with what they say, each a comment: what it would be if it were not there.
std::string sample_config(const std::vector<ConfigKey>& keys);

}  // namespace bandsaw
