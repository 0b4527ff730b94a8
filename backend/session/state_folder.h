// A virtual GPU's folder on disk, for its runners.
#pragma once

#include <sys/types.h>

#include <string>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// As root, before the session becomes another user: makes the last folder of `path` and gives it to user and group
// `uid` (0: it stays the caller's). Follows no link there and touches nothing inside, because that user writes in it.
// Group `readers`, unless that is 0, may come in; it reads what everybody may read there.
// One of user `before` is made anew: in it are caches alone. Who calls must trust the folders above. EACCES: the folder
// is another user's.
Result<UniqueFd> open_state_folder(const std::string& path, uid_t uid, uid_t before = 0, gid_t readers = 0);

}  // namespace bandsaw
