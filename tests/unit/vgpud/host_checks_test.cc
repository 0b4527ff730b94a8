// What `vgpuctl doctor` says of hosts.
#include "tools/vgpuctl/host_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace bandsaw::ctl {
namespace {

// A host where all is good, until a test takes something away.
class HostChecks : public testing::Test {
 protected:
  HostChecks() {
    host_.read = [this](const std::string& path) -> std::optional<std::string> {
      const auto found = files_.find(path);
      return found == files_.end() ? std::nullopt : std::optional(found->second);
    };
    host_.exists = [this](const std::string& path) { return files_.contains(path); };
    host_.opens = [this](const std::string& path) { return files_.contains(path) && files_.at(path) != "closed"; };
    host_.run = [this](const std::vector<std::string>& command) -> std::optional<std::string> {
      std::string line;
      for (const std::string& word : command) line += (line.empty() ? "" : " ") + word;
      const auto found = commands_.find(line);
      return found == commands_.end() ? std::nullopt : std::optional(found->second);
    };
    host_.has_group = [this](const std::string& name) { return groups_.contains(name); };
    host_.has_user = [this](const std::string& name) { return users_.contains(name); };
    host_.is_member = [this](const std::string& user, const std::string& group) {
      return members_.contains(user + ":" + group);
    };
    host_.has_runner = [this] { return runner_; };
    host_.libvirt_problem = [this] { return libvirt_; };
    host_.status_json = [this] { return status_; };
  }

  Finding find(const std::string& what) {
    const std::vector<Finding> all = check_host(host_);
    const auto found = std::find_if(all.begin(), all.end(), [&](const Finding& one) { return one.what == what; });
    return found == all.end() ? Finding{Verdict::kGood, "", "not looked at", ""} : *found;
  }

  std::map<std::string, std::string> files_ = {
      {"/dev/kvm", ""},
      {"/sys/fs/cgroup/cgroup.controllers", "cpu memory"},
      {"/etc/libvirt/hooks/qemu.d/bandsaw", "exec vgpuctl hook"},
      {"/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "Y"},
      {"/proc/driver/nvidia/version",
       "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root@x)  Sun\nGCC version: "
       "12.2.0"}};
  std::map<std::string, std::string> commands_ = {
      {"qemu-system-x86_64 --version", "QEMU emulator version 10.1.2 (Debian 1:10.1.2+ds-1~bpo13+1)"},
      {"qemu-system-x86_64 -device vfio-user-pci,help", "socket=<SocketAddress>"},
      {"sh -c command -v nvidia-cuda-mps-control", "/usr/bin/nvidia-cuda-mps-control"}};
  std::set<std::string> groups_ = {"bandsaw", "bandsaw-admin", "kvm"}, users_ = {"libvirt-qemu"},
                        members_ = {"libvirt-qemu:kvm"};
  bool runner_ = true;
  std::optional<std::string> libvirt_;
  std::optional<std::string> status_ =
      R"({"devices": [{"id": "cuda:0", "lost": "", "compute": {"by": "time-slices"}}]})";
  HostFacts host_;
};

TEST_F(HostChecks, AGoodHostNeedsNothing) {
  const std::vector<Finding> all = check_host(host_);
  EXPECT_GE(all.size(), 12u);
  for (const Finding& finding : all) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.what << ": " << finding.found;
    EXPECT_EQ(finding.to_do, "") << finding.what;
  }
  EXPECT_EQ(find("NVIDIA driver").found, "580.65");
  EXPECT_EQ(find("QEMU").found, "10.1, with vfio-user-pci");
}

TEST_F(HostChecks, WhatIsMissingIsSaidWithWhatToDo) {
  files_.clear();
  commands_.clear();
  groups_.clear();
  users_.clear();
  libvirt_ = "libvirt does not answer";
  status_.reset();
  const std::vector<Finding> all = check_host(host_);
  for (const Finding& finding : all) {
    if (finding.what == "confinement") continue;
    EXPECT_NE(finding.verdict, Verdict::kGood) << finding.what;
    EXPECT_NE(finding.to_do, "") << finding.what;
  }
  EXPECT_EQ(find("vgpud").verdict, Verdict::kBad);
  EXPECT_EQ(find("MPS").found, "not looked at") << "there is no driver";
}

TEST_F(HostChecks, NoRunnerIsTold) {
  status_.reset();
  EXPECT_NE(find("vgpud").to_do.find("systemctl start vgpud"), std::string::npos);
  runner_ = false;
  EXPECT_NE(find("vgpud").to_do.find("bandsaw-soft"), std::string::npos) << find("vgpud").to_do;
}

TEST_F(HostChecks, OldReleasesAreTold) {
  commands_["qemu-system-x86_64 --version"] = "QEMU emulator version 7.2.17";
  EXPECT_EQ(find("QEMU").found, "7.2, which has no vfio-user-pci");
  commands_["qemu-system-x86_64 --version"] = "QEMU emulator version 11.0.50";
  EXPECT_EQ(find("QEMU").verdict, Verdict::kGood);
  commands_.erase("qemu-system-x86_64 -device vfio-user-pci,help");
  EXPECT_EQ(find("QEMU").found, "11.0, built without vfio-user-pci");
  commands_["qemu-system-x86_64 --version"] = "what is this?";
  EXPECT_EQ(find("QEMU").found, "a version that cannot be read");
  files_["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5";
  EXPECT_EQ(find("NVIDIA driver").verdict, Verdict::kBad);
  EXPECT_EQ(find("NVIDIA driver").found, "550.54");
}

TEST_F(HostChecks, WhoMayNotOpenSocketsIsTold) {
  members_.clear();
  EXPECT_EQ(find("QEMU's user").verdict, Verdict::kBad);
  files_["/sys/module/apparmor/parameters/enabled"] = "Y";
  EXPECT_NE(find("AppArmor").to_do.find("/run/bandsaw/*/vfio*.sock rw,"), std::string::npos);
  files_["/etc/apparmor.d/local/abstractions/libvirt-qemu"] = "  /run/bandsaw/*/vfio*.sock rw,";
  EXPECT_EQ(find("AppArmor").verdict, Verdict::kGood);
  files_["/etc/apparmor.d/local/abstractions/libvirt-qemu"] = "  /run/bandsaw/*/vfio.sock rw,";  // an older release's
  EXPECT_EQ(find("AppArmor").verdict, Verdict::kNote);
  EXPECT_NE(find("AppArmor").to_do.find("vfio*.sock rw,"), std::string::npos);
  files_["/sys/fs/selinux/enforce"] = "1";
  EXPECT_EQ(find("SELinux").verdict, Verdict::kNote);
}

TEST_F(HostChecks, AKvmThatDoesNotOpenIsNone) {
  files_["/dev/kvm"] = "closed";
  EXPECT_EQ(find("KVM").verdict, Verdict::kNote);
}

TEST_F(HostChecks, DevicesSayHowTheyAre) {
  status_ = R"({"devices": [{"id": "cuda:0", "lost": "it is off the bus"},
                            {"id": "cuda:1", "compute": {"by": "gates", "why": "another policy"}},
                            {"id": "cuda:2", "compute": {"by": "progress", "why": "a program is a client of MPS"}}, {"id": "soft", "kind": "soft"}]})";
  EXPECT_EQ(find("device cuda:0").verdict, Verdict::kBad);
  EXPECT_EQ(find("device cuda:1").found, "shares are held by gates: another policy");
  EXPECT_EQ(find("device cuda:2").found, "shares by progress (mps)");
  EXPECT_EQ(find("device soft").verdict, Verdict::kGood);
  status_ = "nonsense";
  EXPECT_EQ(find("vgpud").verdict, Verdict::kGood);
}

}  // namespace
}  // namespace bandsaw::ctl
