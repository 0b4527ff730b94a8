// What a running program does that stops everybody on a GPU for a moment, while others have work: further contexts, and
// faults (backend/control/stall_budget.h).
#pragma once

#include "backend/runner/memory/usage_page_view.h"

namespace bandsaw::runner {

// Takes the price of one from the virtual GPU's budget, and sleeps until it may be made. Returns early once nobody else
// has work. By any thread.
void pace_context(UsagePageView* usage_page);

// Takes the price of a fault, which has happened. By any thread.
void charge_fault(UsagePageView* usage_page);

}  // namespace bandsaw::runner
