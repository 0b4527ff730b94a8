// A running domain goes to another host by libvirt's live migration, without a virtual GPU: vgpuctl migrate has taken
// that out before, and plugs it in after.
#pragma once

#include <string>

#include "memory/base/status.h"

namespace bandsaw::libvirt {

struct MigrationWay {
  std::string from, to;  // libvirt's URIs as this host knows them
  std::string data;      // where the emulators meet, as tcp://HOST; empty: as libvirt chooses
};

// It runs there when this returns, and here as before where it fails. A persistent one is defined there too, and stays
// defined here. Errors: ENOTCONN (one of the two does not answer), ENOENT (no such domain), EIO with libvirt's words.
Status migrate(const MigrationWay& way, const std::string& domain);
// Of one that does not run here: the definition goes. Nothing to undefine is no error.
Status undefine(const std::string& uri, const std::string& domain);

}  // namespace bandsaw::libvirt
