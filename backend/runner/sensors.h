// `bandsaw-runner --sensors BUS_ID`: what a GPU measures, for a session that shows it to those who watch its virtual
// GPU.
#pragma once

namespace bandsaw::runner {

// Reads NVIDIA's NVML once a second and writes a GpuReport (control/gpu_report.h) to standard output, until nobody
// reads there. A process of its own, because NVML keeps the driver open and may take long. Returns an exit status; what
// is wrong is said on standard error.
int print_sensors(const char* bus_id);

}  // namespace bandsaw::runner
