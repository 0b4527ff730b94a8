#include "memory/segment/book.h"

#include <gtest/gtest.h>

#include <string>

namespace bandsaw::segment {
namespace {

constexpr uint32_t kOwner = 1, kReader = 2, kWriter = 3, kStranger = 4;
constexpr uint64_t kBytes = 4 << 20;
constexpr User kMine{kOwner, 1}, kMyOther{kOwner, 2}, kHisSession{kReader, 7}, kHerSession{kWriter, 8};

Spec frames(std::map<uint32_t, Access> grants = {{kReader, Access::kRead}, {kWriter, Access::kReadWrite}}) {
  return {5, "frames", kBytes, std::move(grants)};
}

class BookTest : public ::testing::Test {
 protected:
  uint64_t attach(const User& user, Access wanted) {
    const Spec* const found = book.find("frames", user.vgpu);
    Attachment made;
    if (!found || book.attach(*found, user, wanted, &made) != Refusal::kNone) return 0;
    return made.number;
  }
  Book book{kOwner};
};

TEST_F(BookTest, OnlyThoseWithRightsFindIt) {
  book.set({frames()});
  EXPECT_TRUE(book.find("frames", kOwner));
  EXPECT_TRUE(book.find("frames", kReader));
  EXPECT_FALSE(book.find("frames", kStranger));
  EXPECT_FALSE(book.find("frame", kOwner));
}

TEST_F(BookTest, NobodyGetsMoreThanWasGranted) {
  book.set({frames()});
  EXPECT_TRUE(attach(kHisSession, Access::kRead));
  EXPECT_FALSE(attach(kHisSession, Access::kReadWrite));
  EXPECT_FALSE(attach(kHisSession, Access::kNone));
  EXPECT_TRUE(attach(kHerSession, Access::kReadWrite));
  EXPECT_TRUE(attach(kMine, Access::kReadWrite));
  Attachment made;
  const Spec spec = *book.find("frames", kOwner);
  EXPECT_EQ(book.attach(spec, {kStranger, 9}, Access::kRead, &made), Refusal::kUnknown);
}

TEST_F(BookTest, WhatIsGrantedNoMoreIsRevoked) {
  book.set({frames()});
  attach(kHisSession, Access::kRead);
  const uint64_t hers = attach(kHerSession, Access::kReadWrite), read = attach(kHerSession, Access::kRead);
  const Changes less = book.set({frames({{kReader, Access::kRead}, {kWriter, Access::kRead}})});
  ASSERT_EQ(less.revoked.size(), 1u) << "what she only reads stays";
  EXPECT_EQ(less.revoked[0].number, hers);
  EXPECT_FALSE(book.is_attached(hers));
  EXPECT_TRUE(book.is_attached(read));
  const Changes none = book.set({frames({})});
  EXPECT_EQ(none.revoked.size(), 2u);
  EXPECT_TRUE(none.ended.empty());
}

TEST_F(BookTest, ItEndsWithItsLastUserOnceItsNameIsGone) {
  book.set({frames()});
  const uint64_t his = attach(kHisSession, Access::kRead);
  EXPECT_TRUE(book.set({}).ended.empty());
  EXPECT_FALSE(book.find("frames", kReader)) << "nobody finds it any more";
  EXPECT_TRUE(book.is_attached(his)) << "who has it keeps it";
  EXPECT_TRUE(book.detach(his, kHerSession).ended.empty()) << "it is not hers";
  EXPECT_EQ(book.detach(his, kHisSession).ended, std::vector<uint64_t>{5});
  EXPECT_TRUE(book.detach(his, kHisSession).ended.empty());
}

TEST_F(BookTest, AnotherOfTheSameNameIsAnother) {
  book.set({frames()});
  const uint64_t old = attach(kMine, Access::kReadWrite);
  book.set({});
  Spec next = frames();
  next.id = 6;
  book.set({next});
  EXPECT_EQ(book.find("frames", kOwner)->id, 6u);
  EXPECT_TRUE(book.is_attached(old));
  EXPECT_EQ(book.drop(kMine).ended, std::vector<uint64_t>{5});
}

TEST_F(BookTest, AUserThatEndsLeavesNothing) {
  book.set({frames()});
  attach(kHisSession, Access::kRead);
  attach(kHisSession, Access::kRead);
  attach(kMine, Access::kReadWrite);
  book.drop(kHisSession);
  ASSERT_EQ(book.list().size(), 1u);
  EXPECT_EQ(book.list()[0].users, (std::map<uint32_t, size_t>{{kOwner, 1}}));
  book.set({});
  EXPECT_EQ(book.drop(kMine).ended.size(), 1u);
  EXPECT_TRUE(book.list().empty());
}

TEST_F(BookTest, ForceTakesItFromAll) {
  book.set({frames()});
  attach(kHisSession, Access::kRead);
  attach(kMine, Access::kReadWrite);
  const Changes changes = book.end(5);
  EXPECT_EQ(changes.revoked.size(), 2u);
  EXPECT_EQ(changes.ended.size(), 1u);
  EXPECT_TRUE(book.end(5).ended.empty());
}

TEST_F(BookTest, WhatProgramsMakeLastsAsLongAsOneHoldsIt) {
  const Spec* made = nullptr;
  ASSERT_EQ(book.make("mine", kBytes, kMine, &made), Refusal::kNone);
  const uint64_t id = made->id;
  EXPECT_TRUE(Book::is_own(*made));
  EXPECT_EQ(book.make("mine", kBytes, kMyOther, &made), Refusal::kExists);
  EXPECT_FALSE(book.find("mine", kReader)) << "of this virtual GPU alone";
  book.hold(id, kMyOther);
  EXPECT_TRUE(book.drop(kMine).ended.empty());
  EXPECT_TRUE(book.set({}).ended.empty()) << "no administrator's word ends it";
  EXPECT_EQ(book.drop(kMyOther).ended, std::vector<uint64_t>{id});
}

TEST_F(BookTest, ItsMakerMayTakeItsNameAway) {
  const Spec* made = nullptr;
  book.make("frames", kBytes, kMine, &made);
  const uint64_t id = made->id, used = attach(kMine, Access::kReadWrite);
  EXPECT_TRUE(book.remove_name(id).ended.empty());
  EXPECT_FALSE(book.find("frames", kOwner));
  EXPECT_EQ(book.detach(used, kMine).ended, std::vector<uint64_t>{id});
  book.set({frames()});
  EXPECT_TRUE(book.remove_name(5).ended.empty());
  EXPECT_TRUE(book.find("frames", kOwner)) << "an administrator's name stays";
}

TEST_F(BookTest, ProgramsMakeSoManyAndNoMore) {
  const Spec* made = nullptr;
  for (size_t i = 0; i < kOwnMost; ++i) {
    ASSERT_EQ(book.make("s" + std::to_string(i), kBytes, kMine, &made), Refusal::kNone);
  }
  EXPECT_EQ(book.make("more", kBytes, kMine, &made), Refusal::kTooMany);
}

TEST_F(BookTest, AttachmentsAreBounded) {
  book.set({frames()});
  for (size_t i = 0; i < kAttachmentsMost; ++i) ASSERT_TRUE(attach(kMine, Access::kRead));
  EXPECT_FALSE(attach(kMine, Access::kRead));
}

}  // namespace
}  // namespace bandsaw::segment
