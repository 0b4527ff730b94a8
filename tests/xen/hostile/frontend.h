// A frontend in a program, for a domain without the module: it can do what no driver does.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "guest-driver/uapi/vgpu_xen.h"

struct xs_handle;
struct xenevtchn_handle;
struct xengntdev_handle;

// What a case expected and did not see.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Pages of this program that another domain may map, until the end of this object.
class SharedPages {
 public:
  SharedPages(uint32_t domain, uint32_t count);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  void* data() const { return data_; }
  std::span<const uint32_t> refs() const { return refs_; }

 private:
  xengntdev_handle* handle_;
  void* data_ = nullptr;
  std::vector<uint32_t> refs_;
};

class Frontend {
 public:
  // Of the domain's first virtual GPU. Throws Wrong if it has none.
  Frontend();
  ~Frontend();
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;

  uint32_t backend() const { return backend_; }  // its domain
  uint32_t self() const { return self_; }        // this domain
  void set(const std::string& key, const std::string& value);
  // Waits until the backend's state is one of these; false: it is not for five seconds.
  bool backend_becomes(std::initializer_list<int> states);
  // From any state to one in which the backend offers.
  void start_anew();
  // The ring and the event channel, and the keys that name them; `owner` may map the ring.
  void make_ring(std::optional<uint32_t> owner = {});
  void connect();

  vgpu_xen_ring& ring() { return *static_cast<vgpu_xen_ring*>(pages_->data()); }
  void notify();
  // One request; the tag of its reply.
  template <typename Body>
  uint32_t put(const Body& body, uint32_t list = 0, uint32_t pages = 0) {
    return put_bytes(&body, sizeof body, list, pages);
  }
  // The status of the reply with this tag, within `seconds`. Earlier replies are dropped.
  std::optional<uint32_t> reply(uint32_t tag, double seconds = 10);
  template <typename Body>
  std::optional<uint32_t> ask(const Body& body, uint32_t list = 0, uint32_t pages = 0) {
    return reply(put(body, list, pages));
  }

 private:
  uint32_t put_bytes(const void* body, uint32_t bytes, uint32_t list, uint32_t pages);
  std::optional<std::string> read(const std::string& path);

  xs_handle* store_;
  xenevtchn_handle* channels_;
  std::string folder_ = "device/" VGPU_XEN_DEVICE "/0", backend_folder_;
  uint32_t self_ = 0, backend_ = 0;
  std::optional<SharedPages> pages_;
  int port_ = -1;
  uint32_t requests_ = 0, replies_ = 0;
};
