// The session's part in serving Xen domains; a build without Xen's libraries does nothing here.
#include <nlohmann/json.hpp>

#include "backend/session/session.h"
#include "memory/base/log.h"

namespace bandsaw {

#ifdef BANDSAW_WITH_XEN

void Session::open_xen() {
  if (!xen::available()) return;
  auto opened = xen::Backend::open(config_.name);
  if (opened.ok()) {
    xen_ = std::move(opened.value());
  } else {
    log::warn("no Xen domain can have this virtual GPU: {}", opened.status().message());
  }
}

Status Session::start_xen() {
  if (!xen_) return {};
  vm_->also_post_to([this](vgpu_event_type type, uint32_t process) { xen_->post_event(type, process); });
  xen_->admit([this] { return !vm_->device().connected(); });
  return xen_->start(base_.get(), *vm_);
}

// A domain of this name may be one of libvirt's on another hypervisor: then no domain of Xen's ever has it.
Status Session::expect_domain(const nlohmann::json& request) {
  if (!request.contains("domain")) return {};  // as a vgpud of an earlier version asks
  if (!request["domain"].is_string()) return Status::error(EINVAL, "'domain' must be a text");
  if (xen_) xen_->expect(request["domain"].get<std::string>());
  return {};
}

nlohmann::json Session::xen_state() const {
  if (!xen_) return nullptr;
  return {{"domain", xen_->domain()}, {"connected", xen_->connected()}};
}

#else

void Session::open_xen() {}
Status Session::start_xen() { return {}; }
Status Session::expect_domain(const nlohmann::json&) { return {}; }
nlohmann::json Session::xen_state() const { return nullptr; }

#endif

}  // namespace bandsaw
