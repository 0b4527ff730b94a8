// Processes that another session has left behind.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace bandsaw {

// Waits until no process of this user is left that could still touch memory. False: some are. Blocks.
bool await_end_of_user(uid_t user, std::chrono::milliseconds most);

}  // namespace bandsaw
