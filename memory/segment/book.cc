#include "memory/segment/book.h"

#include <algorithm>
#include <utility>

namespace bandsaw::segment {

Access Book::access(const Spec& spec, uint32_t vgpu) const {
  if (vgpu == owner_) return Access::kReadWrite;
  const auto grant = spec.grants.find(vgpu);
  return grant == spec.grants.end() ? Access::kNone : grant->second;
}

// Takes attachments away that have more than their user may have now.
void Book::revoke_if(Entry* entry, Changes* changes) {
  std::erase_if(entry->attachments, [&](uint64_t number) {
    const auto found = attachments_.find(number);
    if (found->second.access <= access(entry->spec, found->second.user.vgpu)) return false;
    changes->revoked.push_back(found->second);
    attachments_.erase(found);
    return true;
  });
}

void Book::end_if_unused(Entries::iterator entry, Changes* changes) {
  if (entry->second.named || !entry->second.attachments.empty()) return;
  changes->ended.push_back(entry->first);
  entries_.erase(entry);
}

Changes Book::set(const std::vector<Spec>& specs) {
  Changes changes;
  std::set<uint64_t> there;
  for (const Spec& spec : specs) {
    there.insert(spec.id);
    const auto [entry, fresh] = entries_.try_emplace(spec.id);
    const uint64_t bytes = fresh ? spec.bytes : entry->second.spec.bytes;  // a size never changes
    entry->second.spec = spec;
    entry->second.spec.bytes = bytes;
    entry->second.named = true;
    revoke_if(&entry->second, &changes);
  }
  for (auto next = entries_.begin(); next != entries_.end();) {
    const auto entry = next++;
    if (entry->first >= kFirstOwnId || there.contains(entry->first)) continue;
    entry->second.named = false;
    end_if_unused(entry, &changes);
  }
  return changes;
}

const Spec* Book::find(const std::string& name, uint32_t vgpu) const {
  // What an administrator has made is found first: lesser ids.
  for (const auto& [id, entry] : entries_) {
    if (entry.named && entry.spec.name == name && access(entry.spec, vgpu) != Access::kNone) return &entry.spec;
  }
  return nullptr;
}

Refusal Book::make(const std::string& name, uint64_t bytes, const User& maker, const Spec** made) {
  if (find(name, owner_)) return Refusal::kExists;
  const auto own = std::distance(entries_.lower_bound(kFirstOwnId), entries_.end());
  if (static_cast<size_t>(own) >= kOwnMost) return Refusal::kTooMany;
  const uint64_t id = next_own_++;
  Entry& entry = entries_[id];
  entry.spec = {id, name, bytes, {}};
  entry.holders.insert(maker);
  *made = &entry.spec;
  return Refusal::kNone;
}

void Book::hold(uint64_t segment, const User& user) {
  const auto entry = entries_.find(segment);
  if (entry != entries_.end() && is_own(entry->second.spec)) entry->second.holders.insert(user);
}

Changes Book::remove_name(uint64_t segment) {
  Changes changes;
  const auto entry = entries_.find(segment);
  if (entry == entries_.end() || !is_own(entry->second.spec)) return changes;
  entry->second.named = false;
  end_if_unused(entry, &changes);
  return changes;
}

Changes Book::end(uint64_t segment) {
  Changes changes;
  const auto entry = entries_.find(segment);
  if (entry == entries_.end()) return changes;
  for (const uint64_t number : entry->second.attachments) {
    changes.revoked.push_back(attachments_.at(number));
    attachments_.erase(number);
  }
  changes.ended.push_back(segment);
  entries_.erase(entry);
  return changes;
}

Refusal Book::attach(const Spec& spec, const User& user, Access wanted, Attachment* made) {
  const Access most = access(spec, user.vgpu);
  if (most == Access::kNone) return Refusal::kUnknown;
  if (wanted == Access::kNone || wanted > most) return Refusal::kNotPermitted;
  Entry& entry = entries_.at(spec.id);
  if (entry.attachments.size() >= kAttachmentsMost) return Refusal::kTooMany;
  *made = {next_attachment_++, spec.id, user, wanted};
  entry.attachments.insert(made->number);
  attachments_.emplace(made->number, *made);
  return Refusal::kNone;
}

Changes Book::detach(uint64_t attachment, const User& user) {
  Changes changes;
  const auto found = attachments_.find(attachment);
  if (found == attachments_.end() || found->second.user != user) return changes;
  const auto entry = entries_.find(found->second.segment);
  entry->second.attachments.erase(attachment);
  attachments_.erase(found);
  end_if_unused(entry, &changes);
  return changes;
}

Changes Book::drop(const User& user) {
  Changes changes;
  std::erase_if(attachments_, [&](const auto& one) {
    if (one.second.user != user) return false;
    entries_.at(one.second.segment).attachments.erase(one.first);
    return true;
  });
  for (auto next = entries_.begin(); next != entries_.end();) {
    const auto entry = next++;
    if (entry->second.holders.erase(user) > 0 && entry->second.holders.empty()) entry->second.named = false;
    end_if_unused(entry, &changes);
  }
  return changes;
}

std::vector<Book::Listed> Book::list() const {
  std::vector<Listed> all;
  for (const auto& [id, entry] : entries_) {
    Listed listed{&entry.spec, entry.named, {}};
    for (const uint64_t number : entry.attachments) ++listed.users[attachments_.at(number).user.vgpu];
    all.push_back(std::move(listed));
  }
  return all;
}

}  // namespace bandsaw::segment
