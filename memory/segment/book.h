// The shared segments that one virtual GPU owns: which there are, who may use them, and who does. Tables only: whoever
// keeps the memory is told what to do.
//
// A segment has a name, under which it is found, and lives until that is gone and nobody uses it. The name of one that
// an administrator has made lasts until he says otherwise; that of one that programs have made lasts as long as one of
// them holds it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace bandsaw::segment {

enum class Access : uint8_t { kNone = 0, kRead = 1, kReadWrite = 2 };

struct Spec {
  uint64_t id = 0;  // never used twice; of those that administrators make: less than kFirstOwnId
  std::string name;
  uint64_t bytes = 0;
  std::map<uint32_t, Access> grants;  // of other virtual GPUs, by index
};

inline constexpr uint64_t kFirstOwnId = uint64_t{1} << 63;
inline constexpr size_t kOwnMost = 64;            // that programs of one virtual GPU have made
inline constexpr size_t kAttachmentsMost = 4096;  // of one segment

// A process of the owner's, or another virtual GPU's session.
struct User {
  uint32_t vgpu = 0;    // its index
  uint64_t number = 0;  // tells users of one virtual GPU apart; never used twice
  auto operator<=>(const User&) const = default;
};

struct Attachment {
  uint64_t number = 0;  // never used twice
  uint64_t segment = 0;
  User user;
  Access access = Access::kNone;
};

// What follows from a change.
struct Changes {
  std::vector<Attachment> revoked;  // to be taken away from their users; the book has forgotten them
  std::vector<uint64_t> ended;      // segments whose memory is to be given back, after that
};

enum class Refusal { kNone, kUnknown, kNotPermitted, kExists, kTooMany };

// Not thread-safe.
class Book {
 public:
  // `owner`: the index of the virtual GPU.
  explicit Book(uint32_t owner) : owner_(owner) {}

  // All that administrators have made: others of theirs lose their names. Attachments whose rights are gone or have
  // become less are revoked.
  Changes set(const std::vector<Spec>& specs);
  // One that a program makes, which holds its name.
  Refusal make(const std::string& name, uint64_t bytes, const User& maker, const Spec** made);
  // By name, for a user of that virtual GPU; null: there is none that it may use. Valid until the next change.
  const Spec* find(const std::string& name, uint32_t vgpu) const;
  // Whether it was made by programs.
  static bool is_own(const Spec& spec) { return spec.id >= kFirstOwnId; }
  Access access(const Spec& spec, uint32_t vgpu) const;
  // The name of one that programs have made stays as long as somebody holds it.
  void hold(uint64_t segment, const User& user);
  // Takes the name of one that programs have made away.
  Changes remove_name(uint64_t segment);

  // Takes one away, with its name, from all who use it.
  Changes end(uint64_t segment);

  // `wanted` less than it may have is granted as asked; more is kNotPermitted.
  Refusal attach(const Spec& spec, const User& user, Access wanted, Attachment* made);
  // Only the user's own.
  Changes detach(uint64_t attachment, const User& user);
  bool is_attached(uint64_t attachment) const { return attachments_.contains(attachment); }
  // The user has ended.
  Changes drop(const User& user);

  struct Listed {
    const Spec* spec = nullptr;
    bool named = false;
    std::map<uint32_t, size_t> users;  // attachments by virtual GPU
  };
  std::vector<Listed> list() const;

 private:
  struct Entry {
    Spec spec;
    bool named = true;
    std::set<User> holders;  // of a name that programs made
    std::set<uint64_t> attachments;
  };
  using Entries = std::map<uint64_t, Entry>;
  void revoke_if(Entry* entry, Changes* changes);
  void end_if_unused(Entries::iterator entry, Changes* changes);

  const uint32_t owner_;
  Entries entries_;  // by id
  std::map<uint64_t, Attachment> attachments_;
  uint64_t next_own_ = kFirstOwnId, next_attachment_ = 1;
};

}  // namespace bandsaw::segment
