#include "backend/device/cuda/kernel_output.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace bandsaw::cuda {

Status KernelOutput::capture() {
  UniqueFd file(memfd_create("kernel-output", MFD_CLOEXEC));
  if (!file || fcntl(file.get(), F_SETFL, O_APPEND) != 0) return Status::system("a file for kernel output");
  std::fflush(stdout);
  if (dup2(file.get(), STDOUT_FILENO) < 0 || dup2(file.get(), STDERR_FILENO) < 0) {
    return Status::system("redirecting kernel output");
  }
  file_ = std::move(file);
  return {};
}

std::string KernelOutput::take() {
  std::lock_guard lock(mutex_);
  if (!file_) return {};
  std::fflush(stdout);
  struct stat info{};
  if (fstat(file_.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) <= read_) return {};
  std::string text(static_cast<uint64_t>(info.st_size) - read_, '\0');
  const ssize_t got = pread(file_.get(), text.data(), text.size(), static_cast<off_t>(read_));
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  read_ += text.size();
  // Pages that were read are given back; the file's length only grows, so that writers need no coordination.
  constexpr uint64_t kPage = 4096;
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(read_ / kPage * kPage));
  return text;
}

}  // namespace bandsaw::cuda
