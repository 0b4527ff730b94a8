// What this host has, for the completion of shells. Where nobody answers, there is nothing; nothing is printed.
#pragma once

#include <string>
#include <vector>

#include "tools/vgpuctl/commands.h"

namespace bandsaw::ctl {

std::vector<std::string> vgpu_names(const Options& options);
std::vector<std::string> group_names(const Options& options);  // of MPS; "alone" too
std::vector<std::string> segment_names(const Options& options);
std::vector<std::string> device_names(const Options& options);
std::vector<std::string> domain_names(const Options& options);  // of libvirt

}  // namespace bandsaw::ctl
