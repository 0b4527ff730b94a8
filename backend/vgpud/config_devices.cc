#include "backend/vgpud/config_devices.h"

#include <algorithm>
#include <cerrno>

#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/config_reader.h"

namespace bandsaw {
namespace {

constexpr int64_t kSmsMax = 132;  // of the largest part that the software device imitates
constexpr size_t kDevicesMax = 64;

class DeviceReader {
 public:
  explicit DeviceReader(const std::string& path) : path_(path) {}

  Status read(const toml::node& element, PhysicalDevice* device) {
    if (const auto* name = element.as_string()) return named(name->get(), element, device);
    const toml::table* table = element.as_table();
    if (!table) return wrong(element, "an element must be a name like \"cuda:0\", or a table with 'name'");
    const toml::node* name = table->get("name");
    if (!name || !name->is_string()) return wrong(element, "the table has no text 'name' like \"soft:0\"");
    if (Status status = named(name->ref<std::string>(), *name, device); !status.ok()) return status;
    for (const auto& [key, value] : *table) {
      if (Status status = setting(std::string(key.str()), value, device); !status.ok()) return status;
    }
    return {};
  }

  Status wrong(const toml::node& where, const std::string& why) const {
    return Status::error(EINVAL, "{}: 'devices': {}", place(path_, where.source()), why);
  }

 private:
  Status named(const std::string& name, const toml::node& where, PhysicalDevice* device) {
    auto parsed = parse_device(name);
    if (!parsed.ok()) return wrong(where, parsed.status().message());
    *device = std::move(parsed.value());
    return {};
  }

  Status setting(const std::string& key, const toml::node& value, PhysicalDevice* device) {
    if (key == "name") return {};
    if (key == "memory") return memory(value, device);
    if (key == "policy") return word(value, check_policy, &device->policy);
    if (key == "queues") return word(value, check_queues, &device->queues);
    if (key == "planning") return planning(value, device);
    if (key == "sms" && device->kind == "soft") {
      const auto sms = value.value<int64_t>();
      if (!sms || *sms < 1 || *sms > kSmsMax) return wrong(value, fmt::format("'sms' must be 1 to {}", kSmsMax));
      device->sms = static_cast<uint32_t>(*sms);
      return {};
    }
    return wrong(value,
                 key == "sms"
                     ? "'sms' is for software devices; a GPU has as many as it has"
                     : fmt::format("'{}' is not known; there are name, memory, sms, policy, queues and planning", key));
  }

  Status word(const toml::node& value, Status (*check)(const std::string&), std::string* out) {
    const auto text = value.value<std::string>();
    if (!text) return wrong(value, "'policy' and 'queues' must be texts");
    if (Status status = check(*text); !status.ok()) return wrong(value, status.message());
    *out = *text;
    return {};
  }

  Status planning(const toml::node& value, PhysicalDevice* device) {
    const auto mode = parse_planning_mode(value.value<std::string>().value_or(""));
    if (!mode.ok()) return wrong(value, mode.status().message());
    device->planning = mode.value();
    return {};
  }

  Status memory(const toml::node& value, PhysicalDevice* device) {
    const auto text = value.value<std::string>();
    if (!text) return wrong(value, "'memory' must be a text like \"16G\" or \"auto\"");
    if (*text == "auto") return {};
    const auto bytes = parse_size(*text);
    if (!bytes.ok()) return wrong(value, bytes.status().message());
    if (bytes.value() < kMemoryMin) {
      return wrong(value, fmt::format("'memory' is below what one virtual GPU needs, {}", format_size(kMemoryMin)));
    }
    device->memory = bytes.value();
    return {};
  }

  const std::string& path_;
};

}  // namespace

Status read_devices(const toml::table& root, const std::string& path, std::vector<PhysicalDevice>* devices,
                    bool* all_gpus) {
  DeviceReader reader(path);
  const toml::node& node = *root.get("devices");
  const toml::node* const old = root.get("device");
  if (old && !(old->is_table() && old->as_table()->empty()))
    return reader.wrong(*old, "leave [device] out, 'devices' has all");
  *all_gpus = node.value<std::string>() == "all";
  if (*all_gpus) return {};
  const toml::array* list = node.as_array();
  if (!list) return reader.wrong(node, "must be a list like [\"cuda:0\", \"cuda:1\"], or \"all\"");
  if (list->empty() || list->size() > kDevicesMax) {
    return reader.wrong(node, fmt::format("must have 1 to {} elements", kDevicesMax));
  }
  devices->clear();
  for (const toml::node& element : *list) {
    PhysicalDevice device;
    if (Status status = reader.read(element, &device); !status.ok()) return status;
    const auto same = [&device](const PhysicalDevice& other) {
      return other.kind == device.kind && other.index == device.index && other.visible == device.visible;
    };
    if (std::any_of(devices->begin(), devices->end(), same)) {
      return reader.wrong(element, fmt::format("'{}' is there twice", device.name));
    }
    devices->push_back(std::move(device));
  }
  return {};
}

}  // namespace bandsaw
