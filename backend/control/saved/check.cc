#include "backend/control/saved/file.h"

namespace bandsaw::saved {

Status check_file(int file, Head* head, uint64_t* bytes) {
  const auto source = FileSource::begin(file);
  if (!source.ok()) return source.status();
  if (Status status = read_head(source.value().get(), head); !status.ok()) return status;
  for (uint32_t i = 0; i < head->runners; ++i) {
    RunnerHead runner;
    if (Status status = read_one(source.value().get(), &runner); !status.ok()) return status;
    std::string words;
    if (Status status = copy_state(source.value().get(), nullptr, &words); !status.ok()) return status;
    if (Status status = copy_pieces(source.value().get(), nullptr, bytes); !status.ok()) return status;
  }
  return source.value()->end();
}

}  // namespace bandsaw::saved
