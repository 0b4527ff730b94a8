#include "hypervisor/libvirt/hook/script.h"

#include <fmt/format.h>

#include "hypervisor/libvirt/domain.h"

namespace bandsaw::libvirt {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

std::string hook_script(const HookDriver& driver, const std::string& vgpuctl, const std::string& run) {
  return fmt::format(R"(#!/bin/sh
# Written by `vgpuctl hook --install`: sets the shares in the metadata of a domain that starts.
[ "$2 $3" = "prepare begin" ] || exit 0
xml=$(cat)
case $xml in *{}*) ;; *) exit 0 ;; esac
printf '%s\n' "$xml" | /usr/bin/env {} --run {} hook --hypervisor {} "$1"
)",
                     quoted(kMetadataNamespace), quoted(vgpuctl), quoted(run), driver.hypervisor);
}

}  // namespace bandsaw::libvirt
