// A virtual GPU's folder on disk, and the cache of compiled code in it.
#pragma once

#include <sys/types.h>

#include <string>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// As root, before the session becomes another user: makes the last folder of `path` and gives it to `uid` and `gid`
// (0: it stays the caller's). Follows no link there and touches nothing inside, because that user writes in it. Who
// calls must trust the folders above. EACCES: the folder is another user's.
Result<UniqueFd> open_state_folder(const std::string& path, uid_t uid, gid_t gid);

// As that user: the folder for compiled code, in an opened state folder. A link with that name is refused (ELOOP or
// ENOTDIR).
Status make_cache_folder(int state);

}  // namespace bandsaw
