// Memory and events for other guest processes and other virtual GPUs. What is freed is withdrawn: nobody finds it then.
// A process that has imported it keeps it; what was lent to another virtual GPU is taken back.
#include <algorithm>
#include <cstring>

#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {
namespace {

vgpu_exchange_key to_wire(const ExchangeKey& key) {
  vgpu_exchange_key made;
  static_assert(sizeof(made.bytes) == sizeof(key));
  std::memcpy(made.bytes, key.data(), sizeof(made.bytes));
  return made;
}

ExchangeKey from_wire(const vgpu_exchange_key& key) {
  ExchangeKey made;
  std::memcpy(made.data(), key.bytes, sizeof(key.bytes));
  return made;
}

// Whoever lends may take back, which would not reach those that it was handed on to.
bool is_borrowed(const wire::Resolved<Memory>& memory) { return memory && memory.object->borrowed; }

}  // namespace

Handlers::Handlers(const World& world)
    : world_(world), device_(world.device), graph_memory_(&world.device, &world.memory) {
  world_.exchange.set_on_revoked([this](const ExchangeKey& key) { revoked(key); });
}

void Handlers::memory_export(C call, R<Memory> memory, uint64_t address, wire::MemoryExportAnswer answer) {
  if (is_borrowed(memory)) return answer(CUDA_ERROR_NOT_SUPPORTED);
  const uint64_t name = memory ? memory.handle : address;
  {
    std::lock_guard lock(published_mutex_);
    if (const auto known = published_.find(name); known != published_.end()) {
      const Published& thing = known->second;
      return answer(CUDA_SUCCESS, to_wire(thing.key), thing.bytes, thing.offset);
    }
  }
  device_.memory_export(memory, address,
                        [this, name, context = memory ? 0 : call.context.handle, answer](
                            CUresult result, UniqueFd fd, uint64_t bytes, uint64_t offset) {
                          if (result != CUDA_SUCCESS) return answer(result);
                          ExchangeClient::Thing thing;
                          thing.fd = std::move(fd);
                          thing.bytes = bytes;
                          Published made{{}, context, bytes, offset};
                          world_.exchange.publish(
                              std::move(thing),
                              [this, name, made, answer](int error, ExchangeClient::Thing published) mutable {
                                if (error != 0) return answer(CUDA_ERROR_OUT_OF_MEMORY);
                                made.key = published.tail.key;
                                {
                                  std::lock_guard lock(published_mutex_);
                                  published_[name] = made;
                                }
                                answer(CUDA_SUCCESS, to_wire(made.key), made.bytes, made.offset);
                              });
                        });
}

void Handlers::memory_import(C, const vgpu_exchange_key& key, wire::MemoryImportAnswer answer) {
  world_.exchange.fetch(from_wire(key), false, [this, answer](int error, ExchangeClient::Thing thing) {
    // What has no bytes is an event.
    if (error != 0 || !thing.fd || thing.bytes == 0) return answer(CUDA_ERROR_INVALID_VALUE);
    MemoryRef object;
    uint64_t handle = 0;
    CUresult result = device_.memory_import(thing.fd.get(), thing.bytes, &object);
    if (result == CUDA_SUCCESS) result = give(HandleKind::kMemory, std::move(object), 0, &handle);
    answer(result, handle, thing.bytes);
  });
}

void Handlers::event_export(C call, R<Event> event, wire::EventExportAnswer answer) {
  ExchangeClient::Thing thing;
  const CUresult result = device_.event_export(event, &thing.tail.payload, &thing.fd);
  if (result != CUDA_SUCCESS) return answer(result);
  world_.exchange.publish(std::move(thing), [this, name = event.handle, context = call.context.handle, answer](
                                                int error, ExchangeClient::Thing published) {
    if (error != 0) return answer(CUDA_ERROR_OUT_OF_MEMORY);
    {
      std::lock_guard lock(published_mutex_);
      published_[name] = {published.tail.key, context};
    }
    answer(CUDA_SUCCESS, to_wire(published.tail.key));
  });
}

void Handlers::event_import(C call, const vgpu_exchange_key& key, wire::EventImportAnswer answer) {
  const ExchangeKey wanted = from_wire(key);
  world_.exchange.fetch(wanted, false, [this, context = call.context, answer](int error, ExchangeClient::Thing thing) {
    if (error == ENOTSUP) return answer(CUDA_ERROR_NOT_SUPPORTED);
    if (error != 0 || thing.bytes != 0) return answer(CUDA_ERROR_INVALID_VALUE);
    EventRef object;
    uint64_t handle = 0;
    CUresult result = device_.event_import(context, thing.tail.payload, thing.fd.get(), &object);
    if (result == CUDA_SUCCESS) result = give(HandleKind::kEvent, std::move(object), context.handle, &handle);
    answer(result, handle);
  });
}

void Handlers::memory_lend(C call, R<Memory> memory, uint64_t address, wire::MemoryLendAnswer answer) {
  if (is_borrowed(memory)) return answer(CUDA_ERROR_NOT_SUPPORTED);
  const uint64_t name = memory ? memory.handle : address;
  const uint64_t context = memory ? 0 : call.context.handle;
  device_.memory_export(
      memory, address, [this, name, context, answer](CUresult result, UniqueFd fd, uint64_t bytes, uint64_t offset) {
        if (result != CUDA_SUCCESS) return answer(result);
        const uint64_t base = name - offset;
        {
          std::lock_guard lock(published_mutex_);
          if (const auto key = lent_.find(base, name, context))
            return answer(CUDA_SUCCESS, to_wire(*key), bytes, offset);
        }
        ExchangeClient::Thing thing;
        thing.fd = std::move(fd);
        thing.bytes = bytes;
        world_.exchange.publish(std::move(thing), [=, this](int error, ExchangeClient::Thing published) {
          if (error != 0) return answer(CUDA_ERROR_OUT_OF_MEMORY);
          std::unique_lock lock(published_mutex_);
          // Another thread may have been faster.
          if (!lent_.add(base, published.tail.key)) world_.exchange.withdraw(published.tail.key);
          const auto key = lent_.find(base, name, context);
          lock.unlock();
          answer(CUDA_SUCCESS, to_wire(*key), bytes, offset);
        });
      });
}

// With published_mutex_ held.
void Handlers::unlend(uint64_t name) {
  if (const auto key = lent_.remove(name)) world_.exchange.withdraw(*key);
}

void Handlers::memory_borrow(C, const vgpu_exchange_key& key, wire::MemoryBorrowAnswer answer) {
  const ExchangeKey wanted = from_wire(key);
  world_.exchange.fetch(wanted, true, [this, wanted, answer](int error, ExchangeClient::Thing thing) {
    if (error != 0 || !thing.fd || thing.bytes == 0) return answer(CUDA_ERROR_INVALID_VALUE);
    MemoryRef object;
    uint64_t handle = 0;
    CUresult result = device_.memory_borrow(thing.fd.get(), thing.bytes, &object);
    if (result == CUDA_SUCCESS) {
      object->borrowed = true;
      std::lock_guard lock(published_mutex_);
      auto& of_key = borrowed_[wanted];
      std::erase_if(of_key, [](const auto& one) { return one.expired(); });
      of_key.push_back(object);
    }
    if (result == CUDA_SUCCESS) result = give(HandleKind::kMemory, std::move(object), 0, &handle);
    answer(result, handle, thing.bytes);
  });
}

void Handlers::revoked(const ExchangeKey& key) {
  std::unique_lock lock(published_mutex_);
  const auto gone = borrowed_.extract(key);
  lock.unlock();
  if (gone.empty()) return;
  for (const auto& one : gone.mapped()) {
    if (const MemoryRef memory = one.lock()) device_.memory_revoke(memory);
  }
}

void Handlers::withdraw(uint64_t thing) {
  std::lock_guard lock(published_mutex_);
  unlend(thing);
  const auto known = published_.find(thing);
  if (known == published_.end()) return;
  world_.exchange.withdraw(known->second.key);
  published_.erase(known);
}

void Handlers::withdraw_of(uint64_t context) {
  std::lock_guard lock(published_mutex_);
  while (const auto name = lent_.any_of(context)) unlend(*name);
  std::erase_if(published_, [&](const auto& entry) {
    if (entry.second.context != context) return false;
    world_.exchange.withdraw(entry.second.key);
    return true;
  });
}

}  // namespace bandsaw::runner
