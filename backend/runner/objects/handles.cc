#include "backend/runner/objects/handles.h"

#include "backend/device/given.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

constexpr uint32_t kGenerationMask = 0xffffff;

uint64_t make_handle(HandleKind kind, uint32_t generation, uint32_t part_and_index) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(generation) << 32 | part_and_index;
}

uint32_t index_of(uint64_t handle) { return static_cast<uint32_t>(handle) & (HandleTable::kMax - 1); }

}  // namespace

const HandleTable::Slot* HandleTable::slot(uint64_t handle) const {
  const uint32_t index = index_of(handle);
  if (index >= slots_.size()) return nullptr;
  const Slot& slot = slots_[index];
  return slot.object && make_handle(slot.kind, slot.generation, part_ | index) == handle ? &slot : nullptr;
}

// Of a call that is made again: the one that it had, or none.
std::optional<uint32_t> HandleTable::take_index(HandleKind kind) {
  if (const Given* const given = Given::current(); given && given->again()) {
    const uint32_t index = index_of(given->next());
    if (index >= slots_.size() || slots_[index].object) return std::nullopt;
    if (make_handle(kind, slots_[index].generation, part_ | index) != given->next()) return std::nullopt;
    return index;
  }
  if (!free_.empty()) {
    const uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  if (slots_.size() < kMax) {
    slots_.emplace_back();
    return static_cast<uint32_t>(slots_.size() - 1);
  }
  log::error("the process holds {} handles, no more are given", kMax);
  return std::nullopt;
}

uint64_t HandleTable::add_locked(HandleKind kind, ObjectRef object, uint64_t owner) {
  if (!ledger_.take(kind)) return 0;
  const auto index = take_index(kind);
  if (!index) {
    ledger_.give_back(kind);
    return 0;
  }
  Slot& slot = slots_[*index];
  slot.kind = kind;
  slot.owner = owner;
  slot.object = std::move(object);
  if (owner != 0) owned_[owner].insert(*index);
  const uint64_t handle = make_handle(kind, slot.generation, part_ | *index);
  if (Given* const given = Given::current()) given->give(handle);
  return handle;
}

std::vector<uint64_t> HandleTable::all() const {
  std::vector<uint64_t> handles;
  std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].object) handles.push_back(make_handle(slots_[i].kind, slots_[i].generation, part_ | i));
  }
  return handles;
}

std::vector<uint32_t> HandleTable::generations() const {
  std::vector<uint32_t> all;
  std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_) all.push_back(slot.generation);
  return all;
}

void HandleTable::begin_again(const std::vector<uint32_t>& generations) {
  std::lock_guard lock(mutex_);
  slots_.resize(generations.size());
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].generation = generations[i] & kGenerationMask;
}

void HandleTable::finish_again() {
  std::lock_guard lock(mutex_);
  free_.clear();
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].object) free_.push_back(i);
  }
}

uint64_t HandleTable::add(HandleKind kind, ObjectRef object, uint64_t owner) {
  std::lock_guard lock(mutex_);
  return add_locked(kind, std::move(object), owner);
}

uint64_t HandleTable::add_once(HandleKind kind, ObjectRef object, uint64_t owner) {
  std::lock_guard lock(mutex_);
  const Object* key = object.get();
  if (const auto known = handles_.find(key); known != handles_.end()) return known->second;
  const uint64_t handle = add_locked(kind, std::move(object), owner);
  if (handle != 0) handles_.emplace(key, handle);
  return handle;
}

ObjectRef HandleTable::find(HandleKind kind, uint64_t handle) const {
  if (wire::kind_of(handle) != kind) return nullptr;
  std::lock_guard lock(mutex_);
  const Slot* found = slot(handle);
  return found ? found->object : nullptr;
}

bool HandleTable::replace(uint64_t handle, ObjectRef object) {
  std::lock_guard lock(mutex_);
  if (!slot(handle)) return false;
  std::swap(slots_[index_of(handle)].object, object);
  return true;
}

// Objects go to `gone`, so that their destructors run without the lock.
void HandleTable::clear(uint32_t index, std::vector<ObjectRef>* gone) {
  Slot& slot = slots_[index];
  const uint64_t handle = make_handle(slot.kind, slot.generation, part_ | index);
  handles_.erase(slot.object.get());
  ledger_.give_back(slot.kind);
  gone->push_back(std::move(slot.object));
  slot.object = nullptr;
  slot.generation = (slot.generation + 1) & kGenerationMask;
  if (slot.generation == 0) slot.generation = 1;
  if (slot.owner != 0) {
    if (const auto siblings = owned_.find(slot.owner); siblings != owned_.end()) siblings->second.erase(index);
    slot.owner = 0;
  }
  free_.push_back(index);
  clear_owned(handle, gone);
}

void HandleTable::clear_owned(uint64_t handle, std::vector<ObjectRef>* gone) {
  auto owned = owned_.extract(handle);
  if (owned.empty()) return;
  for (const uint32_t index : owned.mapped()) clear(index, gone);
}

ObjectRef HandleTable::remove(HandleKind kind, uint64_t handle) {
  std::vector<ObjectRef> gone;
  if (wire::kind_of(handle) != kind) return nullptr;
  std::lock_guard lock(mutex_);
  if (!slot(handle)) return nullptr;
  clear(index_of(handle), &gone);
  return gone.front();
}

void HandleTable::remove_owned(uint64_t handle) {
  std::vector<ObjectRef> gone;
  std::lock_guard lock(mutex_);
  clear_owned(handle, &gone);
}

uint64_t HandleTable::owner(uint64_t handle) const {
  std::lock_guard lock(mutex_);
  const Slot* found = slot(handle);
  return found ? found->owner : 0;
}

void HandleTable::give_to(uint64_t handle, uint64_t owner) {
  std::lock_guard lock(mutex_);
  if (!slot(handle) || !slot(owner)) return;
  for (const Slot* above = slot(owner); above; above = slot(above->owner)) {
    if (above == slot(handle)) return;  // it would own itself
  }
  Slot& given = slots_[index_of(handle)];
  if (const auto siblings = owned_.find(given.owner); siblings != owned_.end()) {
    siblings->second.erase(index_of(handle));
  }
  given.owner = owner;
  owned_[owner].insert(index_of(handle));
}

uint64_t HandleTable::handle_of(const Object* object) const {
  std::lock_guard lock(mutex_);
  const auto known = handles_.find(object);
  return known == handles_.end() ? 0 : known->second;
}

size_t HandleTable::size() const {
  std::lock_guard lock(mutex_);
  return slots_.size() - free_.size();
}

}  // namespace bandsaw::runner
