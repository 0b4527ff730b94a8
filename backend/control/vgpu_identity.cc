#include "backend/control/vgpu_identity.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "memory/base/uuid_text.h"

namespace bandsaw {
namespace {

constexpr uint32_t kBuses = 255;  // of a domain: 1 to 255
constexpr uint64_t kFnvBasis = 0xcbf29ce484222325ull, kFnvPrime = 0x100000001b3ull;

uint64_t mix(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * kFnvPrime;
  return (hash ^ 0xffu) * kFnvPrime;  // no byte of a name: "ab", "c" is not "a", "bc"
}

// Takes what stands before the next blank, or all of it.
std::string_view take_word(std::string_view* text) {
  const size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

bool read_hex(std::string_view text, uint32_t most, uint32_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, 16);
  return error == std::errc() && end == text.data() + text.size() && *value <= most;
}

bool read_uuid(std::string_view text, std::array<uint8_t, 16>* uuid) {
  if (text.size() != 32) return false;
  for (size_t i = 0; i < uuid->size(); ++i) {
    uint32_t byte = 0;
    if (!read_hex(text.substr(2 * i, 2), 0xff, &byte)) return false;
    (*uuid)[i] = static_cast<uint8_t>(byte);
  }
  return true;
}

}  // namespace

VgpuIdentity make_vgpu_identity(std::string_view host, std::string_view name, uint32_t index) {
  VgpuIdentity identity;
  identity.name = name;
  for (const int half : {0, 1}) {
    const uint64_t salt = mix(kFnvBasis, half == 0 ? "bandsaw uuid high" : "bandsaw uuid low");
    const uint64_t hash = mix(mix(salt, host), name);
    std::memcpy(identity.uuid.data() + 8 * half, &hash, sizeof hash);
  }
  identity.uuid[6] = static_cast<uint8_t>((identity.uuid[6] & 0x0f) | 0x80);  // version 8: a vendor's own
  identity.uuid[8] = static_cast<uint8_t>((identity.uuid[8] & 0x3f) | 0x80);
  identity.pci_domain = kVgpuPciDomain + index / kBuses;
  identity.pci_bus = 1 + index % kBuses;
  return identity;
}

std::string host_id() {
  std::string id;
  std::ifstream file("/etc/machine-id");
  if (file >> id && !id.empty()) return id;
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string uuid_text(const VgpuIdentity& identity) { return "GPU-" + uuid_text(identity.uuid); }

std::string pci_bus_text(const VgpuIdentity& identity) {
  return fmt::format("{:04x}:{:02x}:00.0", identity.pci_domain, identity.pci_bus);
}

std::string to_text(const VgpuIdentity& identity) {
  if (identity.name.empty()) return "";
  std::string uuid;
  for (const uint8_t byte : identity.uuid) uuid += fmt::format("{:02x}", byte);
  return fmt::format("{} {} {:x} {:x}", identity.name, uuid, identity.pci_domain, identity.pci_bus);
}

Result<VgpuIdentity> parse_vgpu_identity(std::string_view text) {
  VgpuIdentity identity;
  if (text.empty()) return identity;
  std::string_view left = text;
  identity.name = take_word(&left);
  const bool good = !identity.name.empty() && read_uuid(take_word(&left), &identity.uuid) &&
                    read_hex(take_word(&left), 0xffff, &identity.pci_domain) &&
                    read_hex(take_word(&left), 0xff, &identity.pci_bus) && left.empty();
  if (!good) return Status::error(EINVAL, "'{}' is no identity of a virtual GPU", text.substr(0, 128));
  return identity;
}

}  // namespace bandsaw
