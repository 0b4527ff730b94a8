// Whose programs may use a virtual GPU. An administrator writes a name of this host; sessions are told its number,
// since they have no list of users.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw {

struct Owner {
  enum class Kind : uint8_t {
    kAnybody,  // whoever can open the socket
    kUser,
    kGroup,   // its members, by their first group or another
    kNobody,  // root alone: the user or group is gone
  };
  Kind kind = Kind::kAnybody;
  uint32_t id = 0;  // of the user or group
  bool operator==(const Owner&) const = default;
};

// "" (anybody), "USER" or "@GROUP": names or numbers of this host. ENOENT: there is none. May ask the host's directory
// service, and wait for it.
Result<Owner> find_owner(const std::string& name);

// As sessions read it: "anybody", "user:1000", "group:100", "nobody".
std::string to_text(const Owner& owner);
Result<Owner> parse_owner(const std::string& text);

// Who is at the other end of a Unix socket, as the kernel knows it.
struct Peer {
  ucred who{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  std::vector<gid_t> groups{};  // all of that user's; whoever is in more than 1024 counts as in none but the first
};
Peer read_peer(int socket);

// Root, and `own`, the user that vgpud runs as, always may.
bool admits(const Owner& owner, const Peer& peer, uid_t own);

// Permissions of a socket that belongs to nobody in particular.
struct SocketAccess {
  unsigned mode = 0660;
  std::optional<gid_t> group{};  // none: the process's own
};

// The number of a group of this host; none if there is no such group. May wait, as find_owner() does.
std::optional<gid_t> find_group(const std::string& name);

// Lets the owner open the socket's file, and nobody else; for anybody, whom `otherwise` says. The file's folder is not
// the tenant's. EPERM: another user than one's own, and the process is not root.
Status give_socket(const std::string& path, const Owner& owner, const SocketAccess& otherwise);

}  // namespace bandsaw
