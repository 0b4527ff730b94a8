#include "tests/unit/xen/fake_store.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace bandsaw::xen {
namespace {

bool is_below(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

}  // namespace

FakeStore::FakeStore() : signal_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { tree_["/local/domain/0"] = ""; }

std::string FakeStore::absolute(const std::string& path) {
  return path.starts_with('/') || path.starts_with('@') ? path : "/local/domain/0/" + path;
}

FakeStore::Tree& FakeStore::tree(uint32_t transaction) {
  if (transaction == 0) return tree_;
  const auto found = transactions_.find(transaction);
  if (found == transactions_.end()) std::abort();  // one that is over
  return found->second.tree;
}

const FakeStore::Tree& FakeStore::tree(uint32_t transaction) const {
  return const_cast<FakeStore*>(this)->tree(transaction);
}

std::optional<std::string> FakeStore::read(const std::string& path, uint32_t transaction) const {
  const Tree& all = tree(transaction);
  const auto found = all.find(absolute(path));
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> FakeStore::list(const std::string& path, uint32_t transaction) const {
  const std::string folder = absolute(path);
  std::set<std::string> names;
  for (const auto& [name, value] : tree(transaction)) {
    if (is_below(name, folder))
      names.insert(name.substr(folder.size() + 1, name.find('/', folder.size() + 1) - folder.size() - 1));
  }
  return {names.begin(), names.end()};
}

void FakeStore::write(const std::string& path, const std::string& value, uint32_t transaction) {
  const std::string name = absolute(path);
  Tree& all = tree(transaction);
  for (size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    all.try_emplace(name.substr(0, slash));
  }
  all[name] = value;
  changed(name, false, transaction);
}

bool FakeStore::remove(const std::string& path, uint32_t transaction) {
  const std::string name = absolute(path);
  Tree& all = tree(transaction);
  const bool was = all.count(name) > 0;
  const bool had_parent = all.count(name.substr(0, name.rfind('/'))) > 0;
  std::erase_if(all, [&](const auto& entry) { return entry.first == name || is_below(entry.first, name); });
  if (was) changed(name, true, transaction);
  return was || had_parent;
}

void FakeStore::changed(const std::string& path, bool removed, uint32_t transaction) {
  if (transaction != 0) return transactions_[transaction].changes.emplace_back(path, removed), void();
  ++generation_;
  for (const Watch& watch : watches_) {
    const std::string watched = absolute(watch.path);
    const bool is_inside = path == watched || is_below(path, watched);
    if (is_inside) push({path, watch.token});
    if (!is_inside && removed && is_below(watched, path)) push({watch.path, watch.token});
  }
}

uint32_t FakeStore::begin() {
  transactions_[next_transaction_] = {tree_, generation_, {}};
  return next_transaction_++;
}

bool FakeStore::end(uint32_t transaction, bool abort) {
  const auto found = transactions_.find(transaction);
  if (found == transactions_.end()) std::abort();
  Transaction done = std::move(found->second);
  transactions_.erase(found);
  if (abort) return true;
  if (done.changes.empty()) return true;
  if (done.generation != generation_) return false;
  tree_ = std::move(done.tree);
  for (const auto& [path, removed] : done.changes) changed(path, removed, 0);
  return true;
}

bool FakeStore::watch(const Watch& watch) {
  if (std::find(watches_.begin(), watches_.end(), watch) != watches_.end()) return false;
  watches_.push_back(watch);
  push(watch);  // once at its beginning
  return true;
}

bool FakeStore::unwatch(const Watch& watch) { return std::erase(watches_, watch) > 0; }

void FakeStore::forget_watches() {
  watches_.clear();
  events_.clear();
}

void FakeStore::fire(const std::string& special) {
  for (const Watch& watch : watches_) {
    if (watch.path == special) push(watch);
  }
}

void FakeStore::push(Watch event) {
  events_.push_back(std::move(event));
  eventfd_write(signal_.get(), 1);
}

std::optional<FakeStore::Watch> FakeStore::next_event() {
  if (events_.empty()) {
    eventfd_t count;
    eventfd_read(signal_.get(), &count);
    return std::nullopt;
  }
  Watch event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace bandsaw::xen
