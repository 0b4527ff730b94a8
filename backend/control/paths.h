// Where Bandsaw's programs meet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memory/base/status.h"

namespace bandsaw {

// BANDSAW_RUN (default /run/bandsaw) and BANDSAW_STATE (default /var/lib/bandsaw), read when called.
std::string run_directory();
std::string state_directory();

inline std::string control_socket(const std::string& run) { return run + "/control.sock"; }
inline std::string vgpu_directory(const std::string& run, std::string_view name) {
  return run + "/" + std::string(name);
}
inline std::string session_socket(const std::string& run, std::string_view name) {
  return vgpu_directory(run, name) + "/session.sock";
}
inline std::string direct_socket(const std::string& run, std::string_view name) {
  return vgpu_directory(run, name) + "/direct.sock";
}
inline std::string vfio_socket(const std::string& run, std::string_view name) {
  return vgpu_directory(run, name) + "/vfio.sock";
}
// The same device for QEMU to plug in while a domain runs, and to unplug: without MSI-X (hypervisor/libvirt/README.md).
inline std::string vfio_live_socket(const std::string& run, std::string_view name) {
  return vgpu_directory(run, name) + "/vfio-live.sock";
}
// Where a session asks for the hypervisor's connection of one that has died (hypervisor/vfio_user).
inline std::string held_socket(const std::string& run, std::string_view name) {
  return vgpu_directory(run, name) + "/held.sock";
}
inline std::string gate_socket(const std::string& run, std::string_view name) {
  return vgpu_directory(run, name) + "/gate.sock";
}
// What is left of a virtual GPU that could not be created, until the next of its name. No virtual GPU can have this
// name.
inline std::string failed_folder(const std::string& run) { return run + "/failed.d"; }
inline std::string failed_log(const std::string& run, std::string_view name) {
  return failed_folder(run) + "/" + std::string(name) + ".log";
}
// Where a file for saving or restoring is brought.
inline std::string files_socket(const std::string& run, std::string_view name) {
  return vgpu_directory(run, name) + "/files.sock";
}
// Where sessions reach each other, each under the number of its virtual GPU.
inline std::string peer_folder(const std::string& run) { return run + "/peers.d"; }
inline std::string peer_socket(const std::string& run, uint32_t index) {
  return peer_folder(run) + "/" + std::to_string(index) + ".sock";
}
// Of the MPS daemons that vgpud runs, each with a folder in it. No virtual GPU can have this name.
inline std::string mps_folder(const std::string& run) { return run + "/mps.d"; }
inline constexpr unsigned kMpsFolderMode = 0711;  // who is to pass must know the name: nobody but vgpud may list

// Makes a folder with this mode, whatever the umask is; one that is there stays as it is.
Status make_folder(const std::string& path, unsigned mode);

// How a session ends that lacks something of its sandbox, while all of it is required.
inline constexpr int kNoSandboxStatus = 3;

// A virtual GPU's name: [a-z0-9][a-z0-9-]{0,62}.
bool valid_name(std::string_view name);
inline constexpr const char* kNameRule = "a name has 1 to 63 of a-z, 0-9 and '-', and begins with a letter or digit";

// An executable of ours: in BANDSAW_LIBEXEC if that is set, beside the running program, in the build tree's `room`
// folder (programs of one build lie in sibling folders), or in ../libexec/bandsaw. Empty: not found.
std::string find_program(const std::string& name, const std::string& room);

// The runner of devices of one kind ("soft", "cuda"): RUNNER-KIND if there is one, as packages have it, else RUNNER.
std::string runner_of(const std::string& runner, const std::string& kind);

inline constexpr const char* kRunnerPackages =
    "the package bandsaw-cuda has the runner of GPUs, bandsaw-soft that of software devices";

// What runner_of() takes of the runners beside the running program, as find_program() looks for them. Empty: none.
std::string find_runner();

}  // namespace bandsaw
