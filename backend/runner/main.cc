// bandsaw-runner: one guest process's calls, executed on one device.
//
// A session starts runners ahead of need, with a socket as descriptor kRunnerSocket. A runner gives up what it does
// not need, makes its device, says that it is ready, and waits to be told whom it serves. It is the fault domain and
// the memory-protection domain of its guest process: it ends when that process does, when the session does, or when
// something in it breaks, and takes nobody else along.
//
// `bandsaw-runner --make-segment BYTES` makes memory of a shared segment and sends its descriptors to the session.
// `bandsaw-runner --checkpointer` has NVIDIA's driver take runners off the GPU and bring them back, for a session.
// `bandsaw-runner --sensors BUS_ID` says what a GPU measures, for a session.
// `bandsaw-runner --probe cuda INDEX` says in a line of JSON what a GPU is, for vgpud, which opens none itself;
// `--probe soft INDEX` says whether there is a software device.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "backend/control/packet.h"
#include "backend/control/sharing.h"
#include "backend/control/sm_part.h"
#include "backend/control/window_bases.h"
#include "backend/runner/checkpointer.h"
#include "backend/runner/code_link.h"
#include "backend/runner/host_gpus.h"
#include "backend/runner/libcuda_calls.h"
#include "backend/runner/sensors.h"
#include "backend/runner/service.h"
#include "backend/sandbox/runner_sandbox.h"
#include "backend/sandbox/system_calls.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

constexpr mode_t kOwnerOnly = 0700;
[[maybe_unused]] constexpr const char* kNoSoft =
    "this runner has no software device: install bandsaw-soft, or build with lz4 and zstd";
[[maybe_unused]] constexpr const char* kNoCuda = "this runner has no GPU device: install bandsaw-cuda";

// Which device the session wants: "soft", "soft:INDEX" or "cuda:INDEX".
struct Choice {
  bool cuda = false;
  int index = 0;
};

std::optional<int> parse_index(std::string_view text) {
  int index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size() || index < 0) return std::nullopt;
  return index;
}

Result<Choice> read_choice() {
  const char* const text = std::getenv("BANDSAW_DEVICE");
  const std::string_view name = text ? text : "soft";
  if (name == "soft") return Choice{};
  if (name.starts_with("soft:")) {
    if (const auto index = parse_index(name.substr(5))) return Choice{false, *index};
  }
  if (name.starts_with("cuda:")) {
    if (const auto index = parse_index(name.substr(5))) return Choice{true, *index};
  }
  return Status::error(EINVAL, "BANDSAW_DEVICE is '{}'; it may be soft, soft:INDEX or cuda:INDEX", name);
}

// What the session hands down in the environment.
DeviceConfig read_environment() {
  DeviceConfig config;
  config.name = "Bandsaw software device";
  // The usage page, which comes with the assignment, holds the virtual GPU's share; this only bounds it.
  config.memory_share = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  if (const char* cache = std::getenv("BANDSAW_CACHE")) config.cache_directory = cache;
  if (const char* threads = std::getenv("BANDSAW_THREADS")) config.threads = std::atoi(threads);
  if (const char* sms = std::getenv("BANDSAW_SOFT_SMS")) config.soft_sms = static_cast<uint32_t>(std::atoi(sms));
  config.replaceable = std::getenv("BANDSAW_REPLACEABLE") != nullptr;
  if (const char* recorded = std::getenv("BANDSAW_TIMING")) {
    config.recorded_launches = static_cast<uint32_t>(std::max(0, std::atoi(recorded)));
    if (const char* gpu = std::strchr(recorded, ':')) config.recorded_gpu = gpu + 1;
  }
  return config;
}

// Where the address window may lie: not where the guest process has something else.
std::vector<uint64_t> window_bases() {
  const char* const text = std::getenv("BANDSAW_WINDOW_TAKEN");
  const auto taken = static_cast<uint32_t>(text ? std::atoi(text) : 0);
  std::vector<uint64_t> bases;
  for (const uint64_t base : kWindowBases) {
    if ((taken & bit_of_base(base)) == 0) bases.push_back(base);
  }
  return bases;
}

Status read_sms(DeviceConfig* config) {
  const char* const text = std::getenv("BANDSAW_SMS");
  const auto part = parse_sm_part(text ? text : "");
  if (!part.ok()) return Status::error(EINVAL, "BANDSAW_SMS: {}", part.status().message());
  config->sm_step = part.value().step;
  config->sm_first = part.value().first;
  config->sm_groups = part.value().count;
  return {};
}

Result<SlicingSettings> read_slicing(const Choice& choice) {
  SlicingSettings settings;
  settings.any_gpu = !choice.cuda;
  const char* const text = std::getenv("BANDSAW_SLICES");
  if (Status status = read_slicing_settings(text ? text : "", &settings); !status.ok()) return status;
  return settings;
}

Result<std::unique_ptr<Device>> make_device(const DeviceConfig& config, const Choice& choice, DeviceHost* host) {
  if (choice.cuda) {
#ifdef BANDSAW_HAVE_CUDA
    return make_cuda_device(config, choice.index, host);
#else
    return Status::error(ENODEV, "{}", kNoCuda);
#endif
  }
#ifdef BANDSAW_HAVE_SOFT
  return make_soft_device(config, host);
#else
  return Status::error(ENODEV, "{}", kNoSoft);
#endif
}

Status serve(DeviceConfig config, const Choice& choice) {
  CodeLink code(kRunnerSocket);
  if (std::getenv("BANDSAW_CODE_KEPT")) {
    config.keeper = &code;
  } else if (!config.cache_directory.empty()) {
    // A runner's user makes it: nobody else writes in that folder. NVIDIA's driver makes its own in there.
    ::mkdir(config.cache_directory.c_str(), kOwnerOnly);
  }
  auto window = Reservation::make(VGPU_WINDOW_BYTES, window_bases());
  if (!window.ok()) return window.status();
  config.window_base = window.value().base();
  if (Status status = read_sms(&config); !status.ok()) return status;
  if (choice.cuda) {
    // The driver reserves the device's half itself, on the GPU and here.
    window.value().release(config.window_base + VGPU_WINDOW_DEVICE_OFFSET,
                           VGPU_WINDOW_BYTES - VGPU_WINDOW_DEVICE_OFFSET);
    if (Status status = move_log_from_stderr(); !status.ok()) return status;
  }
  auto slicing = read_slicing(choice);
  if (!slicing.ok()) return slicing.status();
  const char* const identity_text = std::getenv("BANDSAW_IDENTITY");
  auto identity = parse_vgpu_identity(identity_text ? identity_text : "");
  if (!identity.ok()) return identity.status();
  const bool mps_client = std::getenv("BANDSAW_MPS") != nullptr;
  slicing.value().mps = mps_client;
  const char* const guard_text = std::getenv("BANDSAW_GUARD");
  auto guard = read_guard_settings(guard_text ? guard_text : "");
  if (!guard.ok()) return guard.status();
  guard.value().any_gpu = !choice.cuda;
  auto process = Process::make(
      &window.value(), [&](DeviceHost* host) { return make_device(config, choice, host); }, slicing.value());
  if (!process.ok()) return process.status();
  process.value()->set_identity(std::move(identity.value()));
  process.value()->set_object_prices(choice.cuda);
  const char* const sharing = std::getenv("BANDSAW_SHARING");
  if (sharing && std::string_view(sharing) == to_text(Sharing::kMps)) process.value()->gate().set_beside_others();
  process.value()->set_guard(guard.value());
  const bool listed = std::getenv("BANDSAW_IOCTLS") != nullptr;
  // Without the filter a guest's bytes are not read.
  if (Status status = limit_system_calls(choice.cuda, mps_client, listed); !status.ok()) return status;
  // Before the runner is ready, so that whoever assigns it knows them. What a client of MPS has is not its own.
  ChannelGroupReporter channel_groups(kRunnerSocket, choice.cuda && !mps_client ? &watched_channel_groups() : nullptr);
  watch_channel_groups(&channel_groups);
  channel_groups.report();
  Service service{UniqueFd(kRunnerSocket), process.value().get()};
  service.set_on_go_on([&channel_groups] { channel_groups.report_again(); });
  Status status = service.run();
  process.value()->usage_page().release_all();
  if (!status.ok()) log::error("{}", status.message());
  // Not the destructors: a kernel that loops for ever, or a call that waits, would keep them. The kernel of the host
  // takes threads and memory back at once.
  _exit(status.ok() ? EXIT_SUCCESS : EXIT_FAILURE);
}

Result<SegmentDescriptors> make_segment(const Choice& choice, [[maybe_unused]] uint64_t bytes) {
  if (choice.cuda) {
#ifdef BANDSAW_HAVE_CUDA
    return make_cuda_segment(bytes, choice.index);
#else
    return Status::error(ENODEV, "{}", kNoCuda);
#endif
  }
#ifdef BANDSAW_HAVE_SOFT
  return make_soft_segment(bytes);
#else
  return Status::error(ENODEV, "{}", kNoSoft);
#endif
}

// Reads nothing that a guest has written: a number of the session's.
Status send_segment(const char* bytes_text) {
  const auto choice = read_choice();
  if (!choice.ok()) return choice.status();
  if (Status status = enter_sandbox(kRunnerSocket); !status.ok()) return status;
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(bytes_text, bytes_text + std::strlen(bytes_text), bytes);
  if (error != std::errc() || *end != 0 || bytes == 0) return Status::error(EINVAL, "'{}' is no size", bytes_text);
  const auto made = make_segment(choice.value(), bytes);
  if (!made.ok()) log::error("no memory of {} bytes for a shared segment: {}", bytes, made.status().message());
  const int32_t code = made.status().code();
  std::vector<int> fds;
  if (made.ok()) fds.push_back(made.value().write.get());
  if (made.ok() && made.value().read) fds.push_back(made.value().read.get());
  return send_packet(kRunnerSocket, std::as_bytes(std::span(&code, 1)), {}, fds);
}

// Reads nothing that a guest has written: numbers of the session's.
int run_checkpointer() {
  if (const Status status = enter_sandbox(kRunnerSocket); !status.ok()) {
    log::error("{}", status.message());
    return EXIT_FAILURE;
  }
#ifdef BANDSAW_HAVE_CUDA
  if (const Status status = prepare_cuda_checkpoints(); !status.ok()) log::warn("{}", status.message());
  return serve_checkpoints(kRunnerSocket, {.checkpoint = checkpoint_cuda_process, .host_gpus = host_gpu_uuids});
#else
  const auto refuse = [](int, bool, std::span<const GpuPair>) { return Status::error(ENOTSUP, "{}", kNoCuda); };
  return serve_checkpoints(kRunnerSocket, {.checkpoint = refuse, .host_gpus = host_gpu_uuids});
#endif
}

int probe_soft() {
#ifdef BANDSAW_HAVE_SOFT
  std::printf("{\"name\": \"%s\"}\n", read_environment().name.c_str());
  return EXIT_SUCCESS;
#else
  std::fprintf(stderr, "%s\n", kNoSoft);
  return EXIT_FAILURE;
#endif
}

Result<GpuIdentity> probe_gpu([[maybe_unused]] int index) {
#ifdef BANDSAW_HAVE_CUDA
  return probe_cuda_device(index);
#else
  return Status::error(ENODEV, "{}", kNoCuda);
#endif
}

int probe_cuda(const char* index_text) {
  const auto index = parse_index(index_text);
  auto identity =
      index ? probe_gpu(*index) : Result<GpuIdentity>(Status::error(EINVAL, "'{}' is no number of a GPU", index_text));
  if (!identity.ok()) {
    std::fprintf(stderr, "%s\n", identity.status().message().c_str());
    return EXIT_FAILURE;
  }
  const GpuIdentity& gpu = identity.value();
  std::printf(
      "{\"name\": \"%s\", \"uuid\": \"%s\", \"memory\": %llu, \"driver\": \"%d\", \"sms\": %u, \"sm_step\": %u}\n",
      gpu.name.c_str(), gpu.uuid.c_str(), static_cast<unsigned long long>(gpu.memory_bytes), gpu.driver_version,
      gpu.sms, gpu.sm_step);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace bandsaw::runner

int main(int argc, char** argv) {
  using namespace bandsaw;
  if (argc == 4 && std::strcmp(argv[1], "--probe") == 0) {
    if (std::strcmp(argv[2], "cuda") == 0) return runner::probe_cuda(argv[3]);
    if (std::strcmp(argv[2], "soft") == 0) return runner::probe_soft();
  }
  if (argc == 3 && std::strcmp(argv[1], "--sensors") == 0) return runner::print_sensors(argv[2]);
  if (argc == 2 && std::strcmp(argv[1], "--list-gpus") == 0) return runner::list_gpus();
  if (argc == 3 && std::strcmp(argv[1], "--watch-gpu") == 0) return runner::watch_gpu(argv[2]);
  start_log("bandsaw-runner");
  if (argc == 3 && std::strcmp(argv[1], "--make-segment") == 0) {
    const Status sent = runner::send_segment(argv[2]);
    if (!sent.ok()) log::error("{}", sent.message());
    return sent.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  if (argc == 2 && std::strcmp(argv[1], "--checkpointer") == 0) return runner::run_checkpointer();
  const auto choice = runner::read_choice();
  Status status = choice.ok() ? runner::enter_sandbox(kRunnerSocket) : choice.status();
  if (status.ok()) {
    runner::catch_faults();
    status = runner::serve(runner::read_environment(), choice.value());
  }
  log::error("{}", status.message());
  return EXIT_FAILURE;
}
