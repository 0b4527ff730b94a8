// A runner's stand-in for launcher_test.cc. Writes on descriptor 3 its process number, its user and, for each path in
// BANDSAW_PROBE (blanks between), whether it is there ("yes"), out of sight ("no") or closed ("closed"); for the word
// "capabilities", how many it has or could get; for "make:PATH", whether it can make that file, and for
// "rewrite:PATH", whether it can open one to write it anew. Waits if there is "wait".
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <string>

int capabilities() {
  int count = 0;
  for (int one = 0; ::prctl(PR_CAPBSET_READ, one) >= 0; ++one) count += ::prctl(PR_CAPBSET_READ, one);
  return count;
}

int main() {
  const char* const wanted = std::getenv("BANDSAW_PROBE");
  std::istringstream words(wanted ? wanted : "");
  std::string report = std::to_string(::getpid()) + " " + std::to_string(::getuid());
  bool wait = false;
  for (std::string word; words >> word;) {
    wait = wait || word == "wait";
    if (word == "capabilities") {
      report += " " + std::to_string(capabilities());
      continue;
    }
    const bool makes = word.starts_with("make:"), rewrites = word.starts_with("rewrite:");
    const int flags = makes      ? O_WRONLY | O_CREAT | O_EXCL
                      : rewrites ? O_WRONLY | O_CREAT | O_TRUNC
                                 : O_RDONLY | O_NONBLOCK;
    const int file = ::open(word.c_str() + (makes || rewrites ? word.find(':') + 1 : 0), flags, 0600);
    report += file >= 0 ? " yes" : errno == ENOENT ? " no" : " closed";
  }
  if (::write(3, report.data(), report.size()) < 0) return 1;
  while (wait) ::pause();
}
