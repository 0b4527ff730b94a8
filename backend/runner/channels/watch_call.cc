#include "backend/runner/channels/watch_call.h"

#include "backend/control/nvidia_calls.h"

namespace bandsaw::runner {
namespace {

// True: the table has changed.
template <typename Call>
bool note_alloc(ChannelGroupTable* table, int descriptor, const void* argument) {
  const Call& call = *static_cast<const Call*>(argument);
  if (call.result != 0 || call.object_class != nvidia::kChannelGroupClass) return false;
  const auto* parameters = reinterpret_cast<const nvidia::ChannelGroupParameters*>(call.parameters);
  if (!parameters) {
    table->give_up();
    return true;
  }
  if (parameters->engine < nvidia::kFirstComputeEngine || parameters->engine > nvidia::kLastComputeEngine) return false;
  table->made({descriptor, call.client, call.parent, call.object});
  return true;
}

}  // namespace

int watch_call(ChannelGroupTable* table, int descriptor, unsigned long request, void* argument, PassOn pass_on,
               Changed changed) {
  if (!argument) return pass_on(descriptor, request, argument);
  const auto number = static_cast<uint32_t>(request);  // as the kernel reads it: callers may have extended its sign
  const bool frees = number == nvidia::request<nvidia::FreeCall>(nvidia::kFree);
  const auto* freed = static_cast<const nvidia::FreeCall*>(argument);
  // A group is forgotten before it goes, so that nobody who has heard of the change still uses it.
  const bool groups = frees && table->freed(freed->client, freed->object);
  if (groups) changed();
  const int result = pass_on(descriptor, request, argument);
  bool noted = false;
  if (groups && (result != 0 || freed->result != 0)) {
    table->give_up();  // they are still there
    noted = true;
  } else if (result == 0 && number == nvidia::request<nvidia::AllocCall>(nvidia::kAlloc)) {
    noted = note_alloc<nvidia::AllocCall>(table, descriptor, argument);
  } else if (result == 0 && number == nvidia::request<nvidia::AllocCallWithRights>(nvidia::kAlloc)) {
    noted = note_alloc<nvidia::AllocCallWithRights>(table, descriptor, argument);
  }
  if (noted) changed();
  return result;
}

}  // namespace bandsaw::runner
