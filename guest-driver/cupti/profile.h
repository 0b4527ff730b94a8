// What the program wants to know: kinds of activity, callbacks, names for its own work. Fed by libcuda's tracer.
#pragma once

#include <cupti.h>

#include <cstdint>

#include "guest-driver/uapi/trace_table.h"

namespace bandsaw::cupti {

// libcuda's side; nullptr if this process's libcuda.so.1 is not Bandsaw's of this release (said once on stderr).
const bandsaw_trace_table* tracer();

// All are thread-safe. INVALID_KIND, NOT_SUPPORTED: a kind that CUPTI does not have, or that is not recorded here.
CUptiResult enable_kind(CUpti_ActivityKind kind, bool enable);
bool is_enabled(CUpti_ActivityKind kind);
void stop();  // nothing is wanted any more, also no records of what was
// Whether calls of this driver function are recorded, while the kind is.
void enable_driver_function(uint32_t callback, bool enable);

void push_external(CUpti_ExternalCorrelationKind kind, uint64_t id);       // of the calling thread
bool pop_external(CUpti_ExternalCorrelationKind kind, uint64_t* last_id);  // false: there is none

void set_system_thread_ids(bool system);
bool system_thread_ids();

// Contexts that come and go; nullptr: nobody is told.
using ContextChanged = void (*)(void* context, bool created);
CUptiResult tell_contexts(ContextChanged told);

}  // namespace bandsaw::cupti
