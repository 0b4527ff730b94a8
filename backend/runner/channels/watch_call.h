// One call of libcuda's to the kernel driver, on its way: what it does to the channel groups is noted.
#pragma once

#include "backend/runner/channels/channel_group_table.h"

namespace bandsaw::runner {

// Where the call goes, as ioctl; and what is told of a change in the table, which must leave errno alone.
using PassOn = int (*)(int descriptor, unsigned long request, void* argument);
using Changed = void (*)();

// Returns what `pass_on` does. The argument is libcuda's own memory; only calls whose size is known are looked into.
int watch_call(ChannelGroupTable* table, int descriptor, unsigned long request, void* argument, PassOn pass_on,
               Changed changed);

}  // namespace bandsaw::runner
