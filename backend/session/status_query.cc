#include "backend/session/status_query.h"

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "backend/session/gpu_links.h"

namespace bandsaw {
namespace {

constexpr std::chrono::milliseconds kPeriod{1000};
constexpr unsigned kQuietTicks = 3, kQuietWithSensors = 15;  // sensors that nobody asks for are let go before

template <typename T>
vgpu_ctl_reply with(const T& answer) {
  static_assert(sizeof answer <= VGPU_ANSWER_BYTES);
  vgpu_ctl_reply reply{};
  std::memcpy(reply.message, &answer, sizeof answer);
  return reply;
}

uint32_t attribute(const vgpu_device_info& info, CUdevice_attribute which) {
  return static_cast<uint32_t>(std::max(info.attributes[which], 0));
}

uint64_t positive(int64_t bytes) { return static_cast<uint64_t>(std::max<int64_t>(bytes, 0)); }

// It measures nothing. But programs end where a device has no link (Legion does), so it has one as QEMU's ports are.
vgpu_answer_sensors sensors_of_software() {
  constexpr uint32_t kGeneration = 4, kWidth = 16;
  vgpu_answer_sensors sensors{};
  const auto put = [&sensors](vgpu_sensor which, uint32_t value) {
    sensors.known |= uint64_t{1} << which;
    sensors.values[which] = value;
  };
  for (const vgpu_sensor which : {VGPU_SENSOR_PCIE_GENERATION, VGPU_SENSOR_PCIE_GENERATION_MOST})
    put(which, kGeneration);
  for (const vgpu_sensor which : {VGPU_SENSOR_PCIE_WIDTH, VGPU_SENSOR_PCIE_WIDTH_MOST}) put(which, kWidth);
  return sensors;
}

}  // namespace

StatusQuery::StatusQuery(event_base* base, const UsagePageOwner* usage_page, std::string host, VgpuIdentity identity,
                         DeviceInfo device_info, std::unique_ptr<SensorReader> sensors)
    : usage_page_(usage_page),
      host_(std::move(host)),
      identity_(std::move(identity)),
      device_info_(std::move(device_info)),
      sensors_(std::move(sensors)) {
  timer_.reset(event_new(
      base, -1, EV_PERSIST, [](evutil_socket_t, short, void* self) { static_cast<StatusQuery*>(self)->tick(); }, this));
}

bool StatusQuery::awake() const { return evtimer_pending(timer_.get(), nullptr) != 0; }

void StatusQuery::wake() {
  quiet_ = 0;
  if (awake()) return;
  take();
  const timeval period = to_timeval(kPeriod);
  event_add(timer_.get(), &period);
}

// A virtual GPU that nobody uses costs the host nothing.
void StatusQuery::tick() {
  take();
  if (usage_page_->taken() > 0) quiet_ = 0;
  if (usage_page_->taken() == 0 && ++quiet_ >= (sensors_ ? kQuietWithSensors : kQuietTicks)) event_del(timer_.get());
}

void StatusQuery::take() {
  rates_.take(*usage_page_, std::chrono::steady_clock::now());
  if (sensors_) sensors_->tick();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  taken_us_ = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

vgpu_ctl_reply StatusQuery::answer(const vgpu_ctl_query& query, std::span<const ProcessSlot> processes) {
  wake();
  switch (query.what) {
    case VGPU_QUERY_DEVICE:
      return device();
    case VGPU_QUERY_USAGE:
      return usage(processes);
    case VGPU_QUERY_PROCESS:
      return process(processes, query.index);
    case VGPU_QUERY_SENSORS:
      return sensors();
    case VGPU_QUERY_LINKS:
      return links();
    default:
      return make_reply(EINVAL, fmt::format("unknown query {}", uint32_t{query.what}));
  }
}

vgpu_ctl_reply StatusQuery::device() const {
  const vgpu_device_info* const info = device_info_();
  if (!info) return make_reply(EAGAIN, "no runner has been ready yet");
  vgpu_answer_device answer{};
  std::memcpy(answer.name, info->name, std::min(sizeof answer.name, sizeof info->name) - 1);
  std::copy(identity_.uuid.begin(), identity_.uuid.end(), answer.uuid);
  answer.pci_domain = identity_.pci_domain;
  answer.pci_bus = identity_.pci_bus;
  answer.capability_major = attribute(*info, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  answer.capability_minor = attribute(*info, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  answer.cuda_version = static_cast<uint32_t>(std::max(info->driver_version, 0));
  answer.sms = attribute(*info, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  answer.memory_bus_bits = attribute(*info, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  answer.hardware = sensors_ != nullptr;
  return with(answer);
}

// Of the whole GPU, which a runner names as the driver does.
const GpuReport* StatusQuery::report(const vgpu_device_info& info) const {
  return sensors_->read(fmt::format("{:08x}:{:02x}:{:02x}.0", attribute(info, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                                    attribute(info, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                                    attribute(info, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)));
}

vgpu_ctl_reply StatusQuery::sensors() const {
  if (!sensors_) return with(sensors_of_software());
  const vgpu_device_info* const info = device_info_();
  if (!info) return make_reply(EAGAIN, "no runner has been ready yet");
  const GpuReport* const said = report(*info);
  return said ? with(said->sensors) : make_reply(EAGAIN, "the GPU's sensors have not been read yet");
}

vgpu_ctl_reply StatusQuery::links() const {
  if (!sensors_) return with(links_of_software(host_));
  const vgpu_device_info* const info = device_info_();
  if (!info) return make_reply(EAGAIN, "no runner has been ready yet");
  const GpuReport* const said = report(*info);
  if (!said) return make_reply(EAGAIN, "the GPU's links have not been read yet");
  const uint64_t own =
      pci_address(attribute(*info, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID), attribute(*info, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                  attribute(*info, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  return with(links_of_gpu(host_, own, said->links));
}

vgpu_ctl_reply StatusQuery::usage(std::span<const ProcessSlot> processes) const {
  const UsageRate rate = rates_.total();
  vgpu_answer_usage answer{};
  answer.memory_total = usage_page_->memory_share();
  answer.memory_used = positive(usage_page_->memory_used());
  answer.time_us = taken_us_;
  answer.bytes_in = rate.bytes_in;
  answer.bytes_out = rate.bytes_out;
  answer.compute_percent = rate.compute_percent;
  answer.copy_percent = rate.copy_percent;
  answer.processes = static_cast<uint32_t>(processes.size());
  return with(answer);
}

vgpu_ctl_reply StatusQuery::process(std::span<const ProcessSlot> processes, uint32_t index) const {
  if (index >= processes.size()) return make_reply(ENOENT, "fewer processes are running");
  const ProcessSlot& process = processes[index];
  const UsageRate rate = rates_.of(process.slot);
  vgpu_answer_process answer{};
  answer.memory_used = positive(usage_page_->memory_used(process.slot));
  answer.time_us = taken_us_;
  answer.pid = process.pid;
  answer.compute_percent = rate.compute_percent;
  answer.copy_percent = rate.copy_percent;
  return with(answer);
}

}  // namespace bandsaw
