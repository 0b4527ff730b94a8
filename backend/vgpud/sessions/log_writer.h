// A session's log. The session and its runners write into a pipe, and a process of its own, `bandsaw-log`, puts into
// the file what is within bounds: guests can make them write as much as they like. It outlives vgpud, as sessions do,
// and ends when the last of them has.
#pragma once

#include <string>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// Starts `program`, which appends to `path` and keeps what was there before in `path`.1. The result is the pipe's end
// to write to; the process is nobody's child. No program: the result is the file.
Result<UniqueFd> start_log_writer(const std::string& program, const std::string& path);

}  // namespace bandsaw
