// What generated code needs; no header of CUPTI, because newer versions have functions with other types.
#pragma once

namespace bandsaw::cupti {

// CUPTI_ERROR_NOT_SUPPORTED, also for cuptiGetLastError.
int refuse();

}  // namespace bandsaw::cupti
