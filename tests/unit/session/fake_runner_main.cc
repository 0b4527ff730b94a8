// A program that speaks a runner's side of the link and nothing else. FAKE_RUNNER chooses how it behaves: "" (well),
// "crash" (at once), "deaf" (never ready), "stubborn" (does not end when asked).
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend/control/runner_link.h"
#include "guest-driver/uapi/vgpu_control.h"

int main() {
  using namespace bandsaw;
  const char* mode = std::getenv("BANDSAW_FAKE_RUNNER");
  const std::string behaviour = mode ? mode : "";
  if (behaviour == "crash") return 9;
  const RunnerMessage ready{.type = RunnerMessageType::kReady, .value = VGPU_WINDOW_BASE_0};
  if (behaviour != "deaf") ::send(kRunnerSocket, &ready, sizeof ready, 0);
  std::vector<char> buffer(kRunnerMessageMax);
  for (;;) {
    const ssize_t length = ::recv(kRunnerSocket, buffer.data(), buffer.size(), 0);
    if (length < static_cast<ssize_t>(sizeof(RunnerMessage))) return 0;
    RunnerMessage message;
    std::memcpy(&message, buffer.data(), sizeof message);
    if (message.type == RunnerMessageType::kEnd && behaviour != "stubborn") return 0;
    const RunnerMessage done{.type = RunnerMessageType::kDone, .id = message.serial};
    ::send(kRunnerSocket, &done, sizeof done, MSG_NOSIGNAL);
  }
}
