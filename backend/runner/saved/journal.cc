#include "backend/runner/saved/journal.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace bandsaw::runner {
namespace {

using wire::Opcode;

enum class Role { kNone, kMakes, kSets };

Role role_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kContextCreate:
    case Opcode::kLibraryLoad:
    case Opcode::kLibraryKernel:
    case Opcode::kLibraryGlobal:
    case Opcode::kKernelFunction:
    case Opcode::kModuleLoad:
    case Opcode::kModuleFunction:
    case Opcode::kModuleGlobal:
    case Opcode::kMemoryAlloc:
    case Opcode::kMemoryAllocAsync:
    case Opcode::kManagedAdd:
    case Opcode::kPoolCreate:
    case Opcode::kPoolDefault:
    case Opcode::kStreamCreate:
    case Opcode::kStreamCreatePart:
    case Opcode::kEventCreate:
    case Opcode::kArrayCreate:
    case Opcode::kMipmapCreate:
    case Opcode::kMipmapLevel:
    case Opcode::kTextureCreate:
    case Opcode::kSurfaceCreate:
      return Role::kMakes;
    case Opcode::kContextSetLimit:
    case Opcode::kContextReset:
    case Opcode::kFunctionSetAttribute:
    case Opcode::kLibraryBindManaged:
    case Opcode::kPoolSetAttribute:
      return Role::kSets;
    default:
      return Role::kNone;
  }
}

// Whose setting the call changes.
uint64_t target_of(const wire::CheckedRecord& record) {
  return record.opcode == Opcode::kContextSetLimit ? record.context : wire::handle_at(record, 0);
}

// What it changes: the call, its target, and the number of the limit or attribute, or a variable's place and name.
std::string setting_of(const wire::CheckedRecord& record) {
  if (record.opcode == Opcode::kLibraryBindManaged) {
    const auto* const args = reinterpret_cast<const char*>(record.args);
    std::string setting(args, sizeof(wire::LibraryBindManagedArgs));
    setting.append(reinterpret_cast<const char*>(record.tail.data()), record.tail.size());
    return setting;
  }
  uint32_t which = 0;
  std::memcpy(&which, record.args + (record.opcode == Opcode::kContextSetLimit ? 0 : sizeof(uint64_t)), sizeof which);
  const uint64_t parts[] = {static_cast<uint64_t>(record.opcode), target_of(record), which};
  return {reinterpret_cast<const char*>(parts), sizeof parts};
}

std::vector<std::byte> bytes_of(const wire::CheckedRecord& record) {
  const std::byte* const begin = record.args - sizeof(vgpu_record);
  vgpu_record header;
  std::memcpy(&header, begin, sizeof header);
  return {begin, begin + header.bytes};
}

// Of a pool: whoever is given the memory again is given all of the block, and needs no stream for it: what the memory
// waited for has ended.
std::vector<std::byte> whole_block(std::vector<std::byte> record, uint64_t bytes) {
  wire::MemoryAllocAsyncArgs args;
  std::memcpy(&args, record.data() + sizeof(vgpu_record), sizeof args);
  args.size = std::max<uint64_t>(args.size, bytes);
  args.stream = 0;
  std::memcpy(record.data() + sizeof(vgpu_record), &args, sizeof args);
  return record;
}

}  // namespace

bool is_noted(Opcode opcode) { return role_of(opcode) != Role::kNone; }

void Journal::add(uint64_t place, const wire::CheckedRecord& record, const Given& given, bool loads) {
  const Role role = loads ? Role::kMakes : role_of(record.opcode);
  if (role == Role::kNone || (role == Role::kMakes && given.numbers().empty())) return;
  std::lock_guard lock(mutex_);
  if (record.opcode == Opcode::kContextReset) return drop_settings_of(wire::handle_at(record, 0));
  JournalEntry entry{bytes_of(record), given.numbers(), given.code(), loads, given.value()};
  if (record.opcode == Opcode::kMemoryAllocAsync) {
    entry.record = whole_block(std::move(entry.record), given.value());
  }
  if (role == Role::kSets) {
    const auto [known, first] = setting_of_.try_emplace(setting_of(record), place);
    if (!first) erase(std::exchange(known->second, place));
  }
  supersede(place, entry);
  if (entry.code && code_bytes_ + entry.code->size() > kCodeMost) {
    entry.code = nullptr;
    code_left_out_ = true;
  }
  if (entry.code) code_bytes_ += entry.code->size();
  entries_.emplace(place, std::move(entry));
  if (entries_.size() >= prune_at_) prune();
}

// Who was given one of these numbers before has lost it since.
void Journal::supersede(uint64_t place, const JournalEntry& entry) {
  for (const uint64_t number : entry.given) {
    const auto [known, first] = place_of_.try_emplace(number, place);
    if (!first) erase(std::exchange(known->second, place));
  }
}

void Journal::drop_settings_of(uint64_t context) {
  for (auto at = setting_of_.begin(); at != setting_of_.end();) {
    uint64_t parts[3] = {};
    if (at->first.size() == sizeof parts) std::memcpy(parts, at->first.data(), sizeof parts);
    if (parts[0] == static_cast<uint64_t>(Opcode::kContextSetLimit) && parts[1] == context) {
      erase(at->second);
      at = setting_of_.erase(at);
    } else {
      ++at;
    }
  }
}

void Journal::erase(uint64_t place) {
  const auto found = entries_.find(place);
  if (found == entries_.end()) return;
  if (found->second.code) code_bytes_ -= found->second.code->size();
  for (const uint64_t number : found->second.given) {
    const auto known = place_of_.find(number);
    if (known != place_of_.end() && known->second == place) place_of_.erase(known);
  }
  entries_.erase(found);
}

bool Journal::matters(const JournalEntry& entry) const {
  if (!entry.given.empty()) return std::any_of(entry.given.begin(), entry.given.end(), lives_);
  wire::CheckedRecord record;
  return wire::check(entry.record, &record) == nullptr && lives_(target_of(record));
}

void Journal::prune() {
  for (auto at = entries_.begin(); at != entries_.end();) {
    const uint64_t place = at->first;
    const bool keep = matters((at++)->second);
    if (!keep) erase(place);
  }
  std::erase_if(setting_of_, [this](const auto& one) { return !entries_.contains(one.second); });
  prune_at_ = std::max<size_t>(64, 2 * entries_.size());
}

std::vector<JournalEntry> Journal::entries(std::string* why) {
  std::lock_guard lock(mutex_);
  prune();
  // Memory that a texture reads may have been given again since, so textures come last.
  std::vector<JournalEntry> all, textures;
  for (const auto& [place, entry] : entries_) {
    wire::CheckedRecord record;
    const bool texture = wire::check(entry.record, &record) == nullptr && record.opcode == Opcode::kTextureCreate;
    (texture ? textures : all).push_back(entry);
  }
  all.insert(all.end(), std::make_move_iterator(textures.begin()), std::make_move_iterator(textures.end()));
  const bool lacks_code =
      code_left_out_ && std::any_of(all.begin(), all.end(), [](const JournalEntry& entry) {
        wire::CheckedRecord record;
        const bool good = wire::check(entry.record, &record) == nullptr;
        return good && !entry.code && (record.opcode == Opcode::kLibraryLoad || record.opcode == Opcode::kModuleLoad);
      });
  if (lacks_code) *why = "more than 64 MiB of code";
  return all;
}

}  // namespace bandsaw::runner
