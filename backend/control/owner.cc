#include "backend/control/owner.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace bandsaw {
namespace {

constexpr size_t kPeerGroupsMax = 1024;
constexpr std::string_view kUserPrefix = "user:", kGroupPrefix = "group:";

std::optional<uint32_t> whole_number(std::string_view text) {
  uint32_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<Owner> find_group_owner(const std::string& name) {
  const ::group* found = ::getgrnam(name.c_str());
  if (const auto number = whole_number(name); !found && number) found = ::getgrgid(*number);
  if (!found) return Status::error(ENOENT, "this host has no group '{}'", name.substr(0, 64));
  return Owner{Owner::Kind::kGroup, found->gr_gid};
}

}  // namespace

Result<Owner> find_owner(const std::string& name) {
  if (name.empty()) return Owner{};
  if (name.starts_with('@')) return find_group_owner(name.substr(1));
  const ::passwd* found = ::getpwnam(name.c_str());
  if (const auto number = whole_number(name); !found && number) found = ::getpwuid(*number);
  if (!found) return Status::error(ENOENT, "this host has no user '{}'", name.substr(0, 64));
  return Owner{Owner::Kind::kUser, found->pw_uid};
}

std::string to_text(const Owner& owner) {
  switch (owner.kind) {
    case Owner::Kind::kAnybody:
      return "anybody";
    case Owner::Kind::kUser:
      return std::string(kUserPrefix) + std::to_string(owner.id);
    case Owner::Kind::kGroup:
      return std::string(kGroupPrefix) + std::to_string(owner.id);
    case Owner::Kind::kNobody:
      break;
  }
  return "nobody";
}

Result<Owner> parse_owner(const std::string& text) {
  if (text == "anybody") return Owner{};
  if (text == "nobody") return Owner{Owner::Kind::kNobody, 0};
  for (const auto& [prefix, kind] :
       {std::pair{kUserPrefix, Owner::Kind::kUser}, std::pair{kGroupPrefix, Owner::Kind::kGroup}}) {
    if (!text.starts_with(prefix)) continue;
    if (const auto number = whole_number(std::string_view(text).substr(prefix.size()))) return Owner{kind, *number};
  }
  return Status::error(EINVAL, "'{}' is no owner: anybody, nobody, user:NUMBER or group:NUMBER", text.substr(0, 64));
}

Peer read_peer(int socket) {
  Peer peer;
  socklen_t length = sizeof peer.who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer.who, &length) < 0) return {};
  peer.groups.resize(kPeerGroupsMax);
  length = static_cast<socklen_t>(kPeerGroupsMax * sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &length) < 0) length = 0;
  peer.groups.resize(length / sizeof(gid_t));
  peer.groups.push_back(peer.who.gid);
  return peer;
}

bool admits(const Owner& owner, const Peer& peer, uid_t own) {
  if (peer.who.uid == 0 || peer.who.uid == own) return true;
  switch (owner.kind) {
    case Owner::Kind::kAnybody:
      return true;
    case Owner::Kind::kUser:
      return peer.who.uid == owner.id;
    case Owner::Kind::kGroup:
      return std::find(peer.groups.begin(), peer.groups.end(), owner.id) != peer.groups.end();
    case Owner::Kind::kNobody:
      break;
  }
  return false;
}

std::optional<gid_t> find_group(const std::string& name) {
  const ::group* const found = name.empty() ? nullptr : ::getgrnam(name.c_str());
  return found ? std::optional(found->gr_gid) : std::nullopt;
}

Status give_socket(const std::string& path, const Owner& owner, const SocketAccess& otherwise) {
  constexpr unsigned kOwnerOnly = 0600, kGroupToo = 0660;
  uid_t uid = ::geteuid();
  gid_t gid = ::getegid();
  unsigned mode = kOwnerOnly;
  if (owner.kind == Owner::Kind::kAnybody) {
    mode = otherwise.mode;
    gid = otherwise.group.value_or(gid);
  } else if (owner.kind == Owner::Kind::kUser) {
    uid = owner.id;
  } else if (owner.kind == Owner::Kind::kGroup) {
    gid = owner.id;
    mode = kGroupToo;
  }
  struct stat now{};
  if (::stat(path.c_str(), &now) < 0) return Status::system("cannot look at {}", path);
  if ((now.st_uid != uid || now.st_gid != gid) && ::chown(path.c_str(), uid, gid) < 0) {
    return Status::system("cannot give {} to user {} and group {}", path, uid, gid);
  }
  if (::chmod(path.c_str(), mode) < 0) return Status::system("cannot set the permissions of {}", path);
  return {};
}

}  // namespace bandsaw
