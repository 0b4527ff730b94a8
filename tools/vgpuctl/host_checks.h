// What a host needs for virtual GPUs, looked at one by one: `vgpuctl doctor`.
//
// Pure: all that is asked of the host goes through HostFacts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bandsaw::ctl {

struct HostFacts {
  // The text of a file, without a last line feed. Nothing: it is not there, or not for us.
  std::function<std::optional<std::string>(const std::string& path)> read;
  std::function<bool(const std::string& path)> exists;
  std::function<bool(const std::string& path)> opens;  // for reading and writing
  // What a command prints to stdout. Nothing: there is no such program, or it failed.
  std::function<std::optional<std::string>(const std::vector<std::string>& command)> run;
  std::function<bool(const std::string& group)> has_group;
  std::function<bool(const std::string& user, const std::string& group)> is_member;
  std::function<bool(const std::string& user)> has_user;
  std::function<bool()> has_runner;                             // of any device, where packages put it
  std::function<std::optional<std::string>()> libvirt_problem;  // nothing: it answers
  // GET /v1/status; nothing: vgpud does not answer.
  std::function<std::optional<std::string>()> status_json;
};

enum class Verdict {
  kGood,
  kNote,  // some uses do not work, or are slow
  kBad,   // virtual GPUs do not work
};

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string what;  // was looked at
  std::string found;
  std::string to_do;  // empty if it is good
};

std::vector<Finding> check_host(const HostFacts& host);

}  // namespace bandsaw::ctl
