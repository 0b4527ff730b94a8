// Memory and events for other guest processes of the same virtual GPU. What is freed is withdrawn: nobody finds it
// then, but who has it keeps it.
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

}  // namespace

void Handlers::memory_export(C call, R<Memory> memory, uint64_t address, wire::MemoryExportAnswer answer) {
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
  world_.exchange.fetch(from_wire(key), [this, answer](int error, ExchangeClient::Thing thing) {
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
  world_.exchange.fetch(from_wire(key), [this, context = call.context, answer](int error, ExchangeClient::Thing thing) {
    if (error != 0 || thing.bytes != 0) return answer(CUDA_ERROR_INVALID_VALUE);
    EventRef object;
    uint64_t handle = 0;
    CUresult result = device_.event_import(context, thing.tail.payload, thing.fd.get(), &object);
    if (result == CUDA_SUCCESS) result = give(HandleKind::kEvent, std::move(object), context.handle, &handle);
    answer(result, handle);
  });
}

void Handlers::withdraw(uint64_t thing) {
  std::lock_guard lock(published_mutex_);
  const auto known = published_.find(thing);
  if (known == published_.end()) return;
  world_.exchange.withdraw(known->second.key);
  published_.erase(known);
}

void Handlers::withdraw_of(uint64_t context) {
  std::lock_guard lock(published_mutex_);
  std::erase_if(published_, [&](const auto& entry) {
    if (entry.second.context != context) return false;
    world_.exchange.withdraw(entry.second.key);
    return true;
  });
}

}  // namespace bandsaw::runner
