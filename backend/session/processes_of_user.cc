#include "backend/session/processes_of_user.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

namespace bandsaw {
namespace {

constexpr std::chrono::milliseconds kLookPause{10};

// One whose threads have all ended, and that nobody has waited for, has no memory any more.
bool lives(const std::filesystem::path& process, uid_t user) {
  std::ifstream status(process / "status");
  bool of_user = false, ended = false;
  unsigned long threads = 0;
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name, word;
    words >> name >> word;
    if (name == "State:") ended = word == "Z" || word == "X";
    if (name == "Uid:") of_user = word == std::to_string(user);
    if (name == "Threads:") threads = std::stoul(word);
  }
  return of_user && !(ended && threads <= 1);
}

bool any_lives(uid_t user) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); }) &&
        lives(entry.path(), user)) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool await_end_of_user(uid_t user, std::chrono::milliseconds most) {
  for (const auto until = std::chrono::steady_clock::now() + most; std::chrono::steady_clock::now() < until;) {
    if (!any_lives(user)) return true;
    std::this_thread::sleep_for(kLookPause);
  }
  return false;
}

}  // namespace bandsaw
