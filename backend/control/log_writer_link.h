// How vgpud starts `bandsaw-log`, which writes the log of a session.
#pragma once

namespace bandsaw {

// Its descriptors: the end of the pipe that it reads, the log, and the file for what was in the log before.
inline constexpr int kLogWriterPipe = 0, kLogWriterLog = 3, kLogWriterOldLog = 4;
// Its only argument: go on as nobody's child.
inline constexpr const char* kLogWriterDetach = "--detach";

}  // namespace bandsaw
