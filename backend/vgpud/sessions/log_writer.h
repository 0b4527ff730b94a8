// A session's log. The session and its runners write into a pipe, and a process of vgpud's puts into the file what is
// within bounds: guests can make them write as much as they like. It outlives vgpud, as sessions do, and ends when the
// last of them has.
#pragma once

#include <string>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// Starts the process, `program` with kWriteLog, which appends to `path` and keeps what was there before in `path`.1.
// The result is the pipe's end to write to; the process is nobody's child. No program: the result is the file.
Result<UniqueFd> start_log_writer(const std::string& program, const std::string& path);

inline constexpr const char* kWriteLog = "--write-log";  // vgpud's argument that makes it that process
// What that process does, with the pipe as descriptor 0 and the two files as 3 and 4. Returns its exit status.
int run_log_writer();

}  // namespace bandsaw
