#include <cerrno>

#include "backend/control/saved/file.h"

namespace bandsaw::saved {

Status check_file(int file, Contents* contents) {
  const auto source = FileSource::begin(file);
  if (!source.ok()) return source.status();
  if (Status status = read_head(source.value().get(), &contents->head); !status.ok()) return status;
  for (uint32_t i = 0; i < contents->head.runners; ++i) {
    RunnerHead runner;
    if (Status status = read_one(source.value().get(), &runner); !status.ok()) return status;
    std::string words;
    if (Status status = copy_state(source.value().get(), nullptr, &words); !status.ok()) return status;
    if (Status status = copy_pieces(source.value().get(), nullptr, &contents->bytes); !status.ok()) return status;
    if (words.empty()) {
      if (!contents->programs.insert(runner.program).second)
        return Status::error(EPROTO, "it is damaged: a program twice");
    } else {
      contents->lacks = words;
    }
  }
  return source.value()->end();
}

}  // namespace bandsaw::saved
