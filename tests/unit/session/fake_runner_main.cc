// A program that speaks a runner's side of the link and nothing else. FAKE_RUNNER chooses how it behaves: "" (well),
// "crash" (at once), "deaf" (never ready), "stubborn" (does not end when asked, and answers no order to fail), "groups"
// (says that it has two channel groups), "liar" (says so without a descriptor). For a program with the name "fault" it
// notes an illegal address of a kernel in the usage page.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend/control/gpu_report.h"
#include "backend/control/runner_link.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace {

using namespace bandsaw;

constexpr int kUsagePage = 2;  // which of the descriptors that come with kAssign

// Receives a message, and the usage page if descriptors come with it.
ssize_t receive(std::vector<char>* buffer, int* usage_page) {
  iovec part{buffer->data(), buffer->size()};
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t length = ::recvmsg(kRunnerSocket, &message, 0);
  const cmsghdr* header = length >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header && header->cmsg_len >= CMSG_LEN((kUsagePage + 1) * sizeof(int))) {
    std::memcpy(usage_page, CMSG_DATA(header) + kUsagePage * sizeof(int), sizeof(int));
  }
  return length;
}

void fault_if_wanted(const std::vector<char>& message, int usage_page_fd) {
  AssignTail tail;
  std::memcpy(&tail, message.data() + sizeof(RunnerMessage), sizeof tail);
  if (std::strcmp(tail.comm, "fault") != 0) return;
  void* mapped = ::mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, usage_page_fd, 0);
  if (mapped != MAP_FAILED) static_cast<UsagePage*>(mapped)->slots[tail.usage_slot].sticky = 700;
}

// `descriptor` -1: none.
void send_with(void* bytes, size_t length, int descriptor) {
  iovec part{bytes, length};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  ::sendmsg(kRunnerSocket, &header, 0);
}

void say_channel_groups(bool with_descriptor) {
  struct {
    RunnerMessage message{.type = RunnerMessageType::kChannelGroups};
    ChannelGroupList list{.client = 0xc1d, .count = 2, .handles = {1, 2}};
  } said;
  send_with(&said, sizeof said, with_descriptor ? STDIN_FILENO : -1);  // in place of a driver's
}

// As `bandsaw-runner --make-segment`: a file in memory. More than a TiB there is not.
int make_segment(const char* bytes_text) {
  const unsigned long long bytes = std::strtoull(bytes_text, nullptr, 10);
  const int file = ::memfd_create("segment", 0);
  int32_t error = bytes > 1ull << 40 || ::ftruncate(file, static_cast<off_t>(bytes)) < 0 ? ENOMEM : 0;
  send_with(&error, sizeof error, error == 0 ? file : -1);
  return 0;
}

}  // namespace

// As `bandsaw-runner --sensors`, of a GPU of which the temperature is known.
int say_sensors(const char* bus_id) {
  if (std::strcmp(bus_id, "00000000:0a:00.0") != 0) return 1;
  GpuReport report;
  report.sensors.known = 1u << VGPU_SENSOR_TEMPERATURE_C;
  report.sensors.values[VGPU_SENSOR_TEMPERATURE_C] = 45;
  if (::write(STDOUT_FILENO, &report, sizeof report) < 0) return 1;
  ::pause();
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--sensors") == 0) return say_sensors(argv[2]);
  if (argc == 4 && std::strcmp(argv[1], "--probe") == 0) return 0;
  const char* mode = std::getenv("BANDSAW_FAKE_RUNNER");
  const std::string behaviour = mode ? mode : "";
  if (behaviour == "crash") return 9;
  if (argc == 3 && std::strcmp(argv[1], "--make-segment") == 0) return make_segment(argv[2]);
  if (behaviour == "groups" || behaviour == "liar") say_channel_groups(behaviour == "groups");
  const char* const taken = std::getenv("BANDSAW_WINDOW_TAKEN");
  const bool first = !taken || (std::atoi(taken) & 1) == 0;
  const RunnerMessage ready{.type = RunnerMessageType::kReady,
                            .value = first ? VGPU_WINDOW_BASE_0 : VGPU_WINDOW_BASE_1};
  if (behaviour != "deaf") ::send(kRunnerSocket, &ready, sizeof ready, 0);
  std::vector<char> buffer(kRunnerMessageMax);
  for (;;) {
    int usage_page = -1;
    const ssize_t length = receive(&buffer, &usage_page);
    if (length < static_cast<ssize_t>(sizeof(RunnerMessage))) return 0;
    RunnerMessage message;
    std::memcpy(&message, buffer.data(), sizeof message);
    if (message.type == RunnerMessageType::kAssign) fault_if_wanted(buffer, usage_page);
    if (message.type == RunnerMessageType::kEnd && behaviour != "stubborn") return 0;
    if (message.type == RunnerMessageType::kFail && behaviour == "stubborn") continue;
    const RunnerMessage done{.type = RunnerMessageType::kDone, .id = message.serial};
    ::send(kRunnerSocket, &done, sizeof done, MSG_NOSIGNAL);
  }
}
