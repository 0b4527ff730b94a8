// This program's own `ioctl`, in place of libc's: libcuda calls it, and so its channel groups become known. Every call
// goes on to the kernel unchanged. It works because the program exports the symbol (runner/meson.build).
#pragma once

#include "backend/runner/channels/channel_group_reporter.h"

namespace bandsaw::runner {

// What libcuda's calls have shown so far, since the program began.
const ChannelGroupTable& watched_channel_groups();
// From now on the reporter is told of every change, on the thread that made it. It lives as long as the program.
void watch_channel_groups(ChannelGroupReporter* reporter);

}  // namespace bandsaw::runner
