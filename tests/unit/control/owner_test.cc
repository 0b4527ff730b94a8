// Who may use a virtual GPU.
#include "backend/control/owner.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "backend/control/json_link.h"

namespace bandsaw {
namespace {

constexpr uid_t kVgpud = 4242;

Peer peer(uid_t uid, std::vector<gid_t> groups) {
  return {.who = {1, uid, groups.front()}, .groups = std::move(groups)};
}

TEST(Owner, AdmitsWhoItIsAndWhoRunsVgpud) {
  const Owner user{Owner::Kind::kUser, 1000}, group{Owner::Kind::kGroup, 50}, nobody{Owner::Kind::kNobody, 0};
  for (const Owner& any : {user, group, nobody, Owner{}}) {
    EXPECT_TRUE(admits(any, peer(0, {0}), kVgpud));
    EXPECT_TRUE(admits(any, peer(kVgpud, {7}), kVgpud));
    EXPECT_EQ(admits(any, peer(1001, {1001}), kVgpud), any == Owner{});
  }
  EXPECT_TRUE(admits(user, peer(1000, {5}), kVgpud));
  EXPECT_FALSE(admits(user, peer(1001, {1000}), kVgpud));
  EXPECT_TRUE(admits(group, peer(1001, {3, 50}), kVgpud));
  EXPECT_FALSE(admits(group, peer(50, {3}), kVgpud));
  EXPECT_FALSE(admits(nobody, peer(1000, {5}), kVgpud));
}

TEST(Owner, IsFoundByNameAndNumberOrRefused) {
  EXPECT_EQ(find_owner("").value(), Owner{});
  EXPECT_EQ(find_owner("root").value(), (Owner{Owner::Kind::kUser, 0}));
  EXPECT_EQ(find_owner("0").value(), (Owner{Owner::Kind::kUser, 0}));
  EXPECT_EQ(find_owner("@root").value(), (Owner{Owner::Kind::kGroup, 0}));
  for (const char* wrong :
       {"no-such-user", "@no-such-group", "@", "4123456789", "@4123456789", "-1", " root", "99999999999"}) {
    EXPECT_EQ(find_owner(wrong).status().code(), ENOENT) << wrong;
  }
}

TEST(Owner, IsReadAsItIsWritten) {
  for (const Owner& one : {Owner{}, Owner{Owner::Kind::kUser, 1000}, Owner{Owner::Kind::kGroup, 4294967295},
                           Owner{Owner::Kind::kNobody, 0}}) {
    EXPECT_EQ(parse_owner(to_text(one)).value(), one);
  }
  for (const char* wrong : {"", "user", "user:", "user:-1", "user:1x", "group:4294967296", "everybody"}) {
    EXPECT_FALSE(parse_owner(wrong).ok()) << wrong;
  }
}

TEST(Owner, KernelSaysWhoIsAtTheOtherEnd) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  const Peer self = read_peer(one.get());
  EXPECT_EQ(self.who.uid, ::geteuid());
  EXPECT_EQ(self.who.pid, ::getpid());
  EXPECT_EQ(self.groups.back(), ::getegid());
  EXPECT_EQ(read_peer(-1).who.uid, static_cast<uid_t>(-1));
}

TEST(Owner, AloneOpensTheSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives sockets away";
  char folder[] = "/tmp/bandsaw-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/one.sock";
  const auto socket = listen_unix(path, SOCK_STREAM, 0);
  struct stat now{};
  const auto check = [&](const Owner& owner, uid_t uid, gid_t gid, unsigned mode) {
    ASSERT_TRUE(give_socket(path, owner, {.mode = 0666, .group = find_group("daemon")}).ok());
    ASSERT_EQ(::stat(path.c_str(), &now), 0);
    EXPECT_EQ(now.st_uid, uid);
    EXPECT_EQ(now.st_gid, gid);
    EXPECT_EQ(now.st_mode & 0777, mode);
  };
  check({Owner::Kind::kUser, 1000}, 1000, 0, 0600);
  check({Owner::Kind::kGroup, 50}, 0, 50, 0660);
  check({Owner::Kind::kNobody, 0}, 0, 0, 0600);
  check({}, 0, 1, 0666);
  ::unlink(path.c_str());
  ::rmdir(folder);
}

}  // namespace
}  // namespace bandsaw
