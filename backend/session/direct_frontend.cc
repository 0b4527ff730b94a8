#include "backend/session/direct_frontend.h"

#include <sys/socket.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "backend/control/packet.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr size_t kConnectionsMax = 2 * kUsageSlots;
constexpr size_t kMessageMax = 64 * 1024;

}  // namespace

class DirectFrontend::Connection : public ProcessWatcher {
 public:
  Connection(DirectFrontend* frontend, UniqueFd socket)
      : frontend_(frontend), socket_(std::make_shared<UniqueFd>(std::move(socket))) {
    socklen_t length = sizeof peer_;
    ::getsockopt(socket_->get(), SOL_SOCKET, SO_PEERCRED, &peer_, &length);
    if (frontend->admission_) refusal_ = frontend->admission_(socket_->get());
    processes_ =
        std::make_unique<Processes>(frontend->base_, frontend->config_, frontend->source_, frontend->usage_page_, this);
    readable_.reset(event_new(
        frontend->base_, socket_->get(), EV_READ | EV_PERSIST,
        [](evutil_socket_t, short, void* self) { static_cast<Connection*>(self)->receive(); }, this));
    event_add(readable_.get(), nullptr);
  }

  void wake(uint32_t) override {}
  void lost(uint32_t) override { frontend_->close_later(this); }

  void close() {
    readable_.reset();
    closed_ = true;
  }
  bool closed() const { return closed_; }
  nlohmann::json status() const { return processes_->status(); }
  std::vector<ProcessSlot> slots() const { return processes_->slots(); }
  std::string lacks() const { return processes_->lacks(); }
  std::vector<std::shared_ptr<Process>> away() const { return processes_->away(); }
  bool has(const ReturnKey& key) const { return processes_->has(key); }

 private:
  void receive() {
    std::vector<std::byte> buffer(kMessageMax);
    std::vector<UniqueFd> came;
    auto length = receive_packet(socket_->get(), buffer, &came);
    if (!length.ok() && length.status().code() == EAGAIN) return;
    if (!length.ok()) log::warn("direct connection of process {}: {}", peer_.pid, length.status().message());
    if (!length.ok() || length.value() == 0) return frontend_->close_later(this);
    if (!refusal_.ok()) return refuse();
    buffer.resize(length.value());
    name_asker(&buffer);
    UniqueFd file = came.size() == 1 ? std::move(came[0]) : UniqueFd();
    processes_->request(
        buffer,
        [socket = std::weak_ptr(socket_)](const vgpu_ctl_reply& reply, std::span<const int> fds) {
          const auto living = socket.lock();
          if (!living) return;
          const Status status = send_packet(living->get(), std::as_bytes(std::span(&reply, 1)), {}, fds);
          // A client that does not read its answers is cut off; its end of the connection then tells us.
          if (!status.ok()) ::shutdown(living->get(), SHUT_RDWR);
        },
        std::move(file));
  }

  // To one that may not use this virtual GPU: the reason, and the end.
  void refuse() {
    log::warn("direct connection of process {} refused: {}", peer_.pid, refusal_.message());
    const vgpu_ctl_reply reply = make_reply(refusal_.code(), refusal_.message());
    (void)send_packet(socket_->get(), std::as_bytes(std::span(&reply, 1)), {}, {});
    frontend_->close_later(this);
  }

  // The kernel knows better than the client who it is.
  void name_asker(std::vector<std::byte>* message) const {
    vgpu_ctl_create_process create;  // begins RETURN_PROCESS too
    if (message->size() < sizeof create || peer_.pid == 0) return;
    std::memcpy(&create, message->data(), sizeof create);
    const uint32_t type = create.header.type;
    if (type != VGPU_CTL_CREATE_PROCESS && type != VGPU_CTL_RETURN_PROCESS) return;
    create.pid = static_cast<uint32_t>(peer_.pid);
    create.uid = peer_.uid;
    std::memcpy(message->data(), &create, sizeof create);
  }

  DirectFrontend* frontend_;
  std::shared_ptr<UniqueFd> socket_;
  ucred peer_{};
  Status refusal_;  // of whoever is no owner
  EventPtr readable_;
  std::unique_ptr<Processes> processes_;
  bool closed_ = false;
};

DirectFrontend::DirectFrontend(event_base* base, UniqueFd listener, ProcessesConfig config, RunnerSource* source,
                               UsagePageOwner* usage_page)
    : base_(base),
      listener_(std::move(listener)),
      config_(std::move(config)),
      source_(source),
      usage_page_(usage_page) {
  config_.direct = true;
  config_.processes_max = 1;
  acceptable_.reset(event_new(
      base_, listener_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<DirectFrontend*>(self)->accept(); }, this));
  reap_timer_.reset(event_new(
      base_, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<DirectFrontend*>(self)->reap(); },
      this));
  event_add(acceptable_.get(), nullptr);
}

DirectFrontend::~DirectFrontend() = default;

void DirectFrontend::accept() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return;
  if (connections_.size() >= kConnectionsMax) {
    log::warn("direct connection refused: {} are open", connections_.size());
    return;
  }
  connections_.push_back(std::make_unique<Connection>(this, std::move(socket)));
}

void DirectFrontend::close_later(Connection* connection) {
  connection->close();
  const timeval now{0, 0};
  event_add(reap_timer_.get(), &now);
}

void DirectFrontend::reap() {
  connections_.remove_if([](const auto& connection) { return connection->closed(); });
}

size_t DirectFrontend::connections() const { return connections_.size(); }

std::vector<ProcessSlot> DirectFrontend::slots() const {
  std::vector<ProcessSlot> all;
  for (const auto& connection : connections_) {
    for (const ProcessSlot& slot : connection->slots()) all.push_back(slot);
  }
  return all;
}

bool DirectFrontend::has(const ReturnKey& key) const {
  return std::any_of(connections_.begin(), connections_.end(), [&](const auto& one) { return one->has(key); });
}

std::string DirectFrontend::lacks() const {
  for (const auto& connection : connections_) {
    if (std::string words = connection->lacks(); !words.empty()) return words;
  }
  return {};
}

std::vector<std::shared_ptr<Process>> DirectFrontend::away() const {
  std::vector<std::shared_ptr<Process>> all;
  for (const auto& connection : connections_) {
    for (auto& process : connection->away()) all.push_back(std::move(process));
  }
  return all;
}

nlohmann::json DirectFrontend::processes() const {
  auto all = nlohmann::json::array();
  for (const auto& connection : connections_) {
    for (auto& process : connection->status()) all.push_back(std::move(process));
  }
  return all;
}

}  // namespace bandsaw
