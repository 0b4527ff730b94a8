// This program's own `ioctl` and `mmap`, in place of libc's, for libcuda, which calls them. Its channel groups become
// known by its ioctls, which go on to the kernel unchanged; what it maps goes on too, but for large memory that is to
// be made at once (populated_map.h). It works because the program exports the symbols (runner/meson.build).
#pragma once

#include "backend/runner/channels/channel_group_reporter.h"

namespace bandsaw::runner {

// What libcuda's calls have shown so far, since the program began.
const ChannelGroupTable& watched_channel_groups();
// From now on the reporter is told of every change, on the thread that made it. It lives as long as the program.
void watch_channel_groups(ChannelGroupReporter* reporter);

}  // namespace bandsaw::runner
