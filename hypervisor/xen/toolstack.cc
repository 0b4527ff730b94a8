#include "hypervisor/xen/toolstack.h"

#include <fmt/format.h>

// They are C's and do not say so.
extern "C" {
#include <xenstore.h>
}

#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "hypervisor/xen/store_path.h"

namespace bandsaw::xen {
namespace {

struct FreeStore {
  void operator()(xs_handle* handle) const { xs_close(handle); }
  void operator()(void* memory) const { std::free(memory); }
};

class Store {
 public:
  Store() : own_(xs_open(0)), handle_(own_.get()) {}
  explicit Store(xs_handle* handle) : handle_(handle) {}  // which outlives it
  explicit operator bool() const { return handle_ != nullptr; }

  std::optional<std::string> read(const std::string& path) const {
    unsigned length = 0;
    const std::unique_ptr<void, FreeStore> value(xs_read(handle_, transaction_, path.c_str(), &length));
    if (!value) return std::nullopt;
    return std::string(static_cast<const char*>(value.get()), length);
  }
  std::vector<std::string> list(const std::string& path) const {
    unsigned count = 0;
    const std::unique_ptr<char*, FreeStore> names(xs_directory(handle_, transaction_, path.c_str(), &count));
    return names ? std::vector<std::string>(names.get(), names.get() + count) : std::vector<std::string>();
  }
  // A folder that `owner` may write and `reader` may read.
  bool make(const std::string& path, uint32_t owner, uint32_t reader) {
    xs_permissions who[2]{};
    who[0].id = owner;
    who[0].perms = XS_PERM_NONE;
    who[1].id = reader;
    who[1].perms = XS_PERM_READ;
    xs_rm(handle_, transaction_, path.c_str());  // what an earlier domain left
    return xs_mkdir(handle_, transaction_, path.c_str()) &&
           xs_set_permissions(handle_, transaction_, path.c_str(), who, 2);
  }
  bool write(const std::string& path, const std::string& value) {
    return xs_write(handle_, transaction_, path.c_str(), value.data(), static_cast<unsigned>(value.size()));
  }
  bool remove(const std::string& path) { return xs_rm(handle_, transaction_, path.c_str()); }
  // All that `change` does, or nothing of it; again when others were at work.
  template <typename Change>
  Status together(Change&& change) {
    for (;;) {
      transaction_ = xs_transaction_start(handle_);
      if (transaction_ == XBT_NULL) return Status::system("xenstore begins no transaction");
      Status status = change();
      const bool ended = xs_transaction_end(handle_, transaction_, !status.ok());
      const int error = errno;
      transaction_ = XBT_NULL;
      if (ended || !status.ok()) return status;
      if (error != EAGAIN) return Status::error(error, "xenstore does not take the change");
    }
  }

 private:
  std::unique_ptr<xs_handle, FreeStore> own_;
  xs_handle* const handle_;
  xs_transaction_t transaction_ = XBT_NULL;
};

std::vector<uint32_t> list_domains(const Store& store) {
  std::vector<uint32_t> all;
  for (const std::string& number : store.list("/local/domain")) {
    const auto id = parse_number(number, kDomainsMax - 1);
    if (id && *id != 0) all.push_back(*id);
  }
  return all;
}

std::string name_of(const Store& store, uint32_t domain) {
  return store.read(fmt::format("/local/domain/{}/name", domain)).value_or("");
}

Result<uint32_t> find_domain(const Store& store, const std::string& domain) {
  for (const uint32_t id : list_domains(store)) {
    if (std::to_string(id) == domain || name_of(store, id) == domain) return id;
  }
  return Status::error(ENOENT, "no domain '{}' runs (`xl list` shows those that do)", domain);
}

// The device of this domain that has the name, or a free place.
std::optional<DevicePath> find_device(const Store& store, uint32_t domain, const std::string& vgpu) {
  for (const std::string& name : store.list(fmt::format("backend/{}/{}", VGPU_XEN_DEVICE, domain))) {
    const auto device = parse_device(std::to_string(domain), name);
    if (device && store.read(device->backend() + "/name") == vgpu) return device;
  }
  return std::nullopt;
}

DevicePath free_place(const Store& store, uint32_t domain) {
  DevicePath device{domain, 0};
  while (store.read(device.frontend() + "/backend") || store.read(device.backend() + "/name")) ++device.index;
  return device;
}

Status write_device(Store& store, const DevicePath& device, const std::string& vgpu) {
  const std::string own = store.read("domid").value_or("0");
  const uint32_t self = parse_number(own).value_or(0);
  const std::string back = device.backend(), front = device.frontend();
  const std::string state = std::to_string(static_cast<uint32_t>(State::kInitialising));
  const bool done =
      store.make(back, self, device.domain) && store.make(front, device.domain, self) &&
      store.write(back + "/frontend", front) && store.write(back + "/frontend-id", std::to_string(device.domain)) &&
      store.write(back + "/online", "1") && store.write(back + "/state", state) && store.write(back + "/name", vgpu) &&
      store.write(front + "/backend", fmt::format("/local/domain/{}/{}", self, back)) &&
      store.write(front + "/backend-id", own) && store.write(front + "/handle", std::to_string(device.index)) &&
      store.write(front + "/state", state);
  return done ? Status() : Status::system("xenstore does not take the device of domain {}", device.domain);
}

// With the folder of the domain, if this was its last device.
bool remove_backend(Store& store, const DevicePath& device) {
  const std::string domain = fmt::format("backend/{}/{}", VGPU_XEN_DEVICE, device.domain);
  return store.remove(device.backend()) && (!store.list(domain).empty() || store.remove(domain));
}

Status attach_to(Store& store, uint32_t domain, const std::string& vgpu) {
  return store.together([&] {
    if (find_device(store, domain, vgpu)) {
      return Status::error(EEXIST, "domain {} has the virtual GPU '{}' already", domain, vgpu);
    }
    return write_device(store, free_place(store, domain), vgpu);
  });
}

Status no_xen() { return Status::error(ENOTCONN, "xenstored does not answer: is this Xen's dom0, and are you root?"); }

}  // namespace

std::vector<uint32_t> domains(xs_handle* store) { return list_domains(Store(store)); }

std::string domain_name(xs_handle* store, uint32_t domain) { return name_of(Store(store), domain); }

Status attach(xs_handle* store, uint32_t domain, const std::string& vgpu) {
  Store borrowed(store);
  return attach_to(borrowed, domain, vgpu);
}

void forget(xs_handle* store, const DevicePath& device) {
  Store borrowed(store);
  (void)borrowed.together([&] {
    // It may have been given again meanwhile.
    if (!borrowed.read(device.frontend() + "/backend-id")) remove_backend(borrowed, device);
    return Status();
  });
}

Status attach(const std::string& domain, const std::string& vgpu) {
  Store store;
  if (!store) return no_xen();
  const auto id = find_domain(store, domain);
  return id.ok() ? attach_to(store, id.value(), vgpu) : id.status();
}

Status detach(const std::string& domain, const std::string& vgpu) {
  Store store;
  if (!store) return no_xen();
  const auto id = find_domain(store, domain);
  if (!id.ok()) return id.status();
  const auto device = find_device(store, id.value(), vgpu);
  if (!device) return Status::error(ENOENT, "domain '{}' has no virtual GPU '{}'", domain, vgpu);
  return store.together([&] {
    const bool done = store.remove(device->frontend()) && remove_backend(store, *device);
    return done ? Status() : Status::system("xenstore does not remove the device of domain {}", device->domain);
  });
}

}  // namespace bandsaw::xen
