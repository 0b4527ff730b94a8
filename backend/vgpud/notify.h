// What the service manager that started vgpud is told (sd_notify(3), without its library).
#pragma once

#include <string_view>

namespace bandsaw {

// Sends `state`, say "READY=1", if there is one that listens, and forgets where it listens: processes that are started
// from then on do not have its socket in their environment.
void notify_supervisor(std::string_view state);

}  // namespace bandsaw
