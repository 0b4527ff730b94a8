// What a guest process has of virtual memory management, for another runner, and the same there. Managed memory that
// moves lies in such addresses too.
#pragma once

#include <set>
#include <string>

#include "backend/device/gives_again.h"
#include "backend/runner/objects/objects.h"
#include "backend/runner/saved/mapping_state.h"
#include "memory/base/status.h"

namespace bandsaw::runner {

// Of one moment: nobody maps or creates anything meanwhile. In words what could not be made again, empty: nothing.
std::string describe_mappings(GivesAgain& device, Objects& objects, MappingStates* states, std::set<uint64_t>* handles);
// Nothing of `states` is believed.
Status make_mappings(Device& device, Objects& objects, const MappingStates& states);

}  // namespace bandsaw::runner
