// Further contexts of a program, while others have work: each stops them for a moment (backend/control/stall_budget.h).
#pragma once

#include "backend/runner/memory/usage_page_view.h"

namespace bandsaw::runner {

// Takes the price of one from the virtual GPU's budget, and sleeps until it may be made. Returns early once nobody else
// has work. By any thread.
void pace_context(UsagePageView* usage_page);

}  // namespace bandsaw::runner
