// cuptiSubscribe and the callbacks: contexts that come and go. Calls of the program are records only
// (entry_activity.cc): a callback would have to show their parameters.
#include <cupti.h>

#include <atomic>
#include <mutex>

#include "guest-driver/cupti/buffers.h"
#include "guest-driver/cupti/clock.h"
#include "guest-driver/cupti/names.h"
#include "guest-driver/cupti/profile.h"
#include "guest-driver/cupti/result.h"

using namespace bandsaw::cupti;

namespace {

// There is one, as in CUPTI.
struct Subscriber {
  std::mutex mutex;  // of all but the two flags
  bool taken = false;
  CUpti_CallbackFunc function = nullptr;
  void* user = nullptr;
  std::atomic<bool> created{false}, ends{false};
};

Subscriber& subscriber() {
  static auto* const made = new Subscriber;
  return *made;
}

CUpti_SubscriberHandle handle() { return reinterpret_cast<CUpti_SubscriberHandle>(&subscriber()); }

bool is_subscribed(CUpti_SubscriberHandle asked) {
  std::lock_guard lock(subscriber().mutex);
  return asked == handle() && subscriber().taken;
}

std::atomic<bool>* flag_of(CUpti_CallbackDomain domain, CUpti_CallbackId callback) {
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return nullptr;
  if (callback == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) return &subscriber().created;
  return callback == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING ? &subscriber().ends : nullptr;
}

void context_changed(void* context, bool created) {
  CUpti_CallbackFunc function = nullptr;
  void* user = nullptr;
  {
    std::lock_guard lock(subscriber().mutex);
    if (!(created ? subscriber().created : subscriber().ends)) return;
    function = subscriber().function;
    user = subscriber().user;
  }
  CUpti_ResourceData data{};
  data.context = static_cast<CUcontext>(context);
  const auto callback = created ? CUPTI_CBID_RESOURCE_CONTEXT_CREATED : CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING;
  if (function) function(user, CUPTI_CB_DOMAIN_RESOURCE, callback, &data);
}

CUptiResult update_contexts() {
  return tell_contexts(subscriber().created || subscriber().ends ? context_changed : nullptr);
}

void end_subscription() {
  {
    std::lock_guard lock(subscriber().mutex);
    subscriber().taken = false;
    subscriber().function = nullptr;
  }
  subscriber().created = subscriber().ends = false;
}

}  // namespace

extern "C" {

CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle* made, CUpti_CallbackFunc callback, void* user) {
  if (!made) return result(CUPTI_ERROR_INVALID_PARAMETER);
  std::lock_guard lock(subscriber().mutex);
  if (subscriber().taken) return result(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  subscriber().taken = true;
  subscriber().function = callback;
  subscriber().user = user;
  *made = handle();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle asked) {
  if (!is_subscribed(asked)) return result(CUPTI_ERROR_INVALID_PARAMETER);
  const bool told = subscriber().created || subscriber().ends;
  end_subscription();
  return told ? result(update_contexts()) : CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle asked, CUpti_CallbackDomain domain,
                                         CUpti_CallbackId callback) {
  if (!is_subscribed(asked)) return result(CUPTI_ERROR_INVALID_PARAMETER);
  std::atomic<bool>* const flag = flag_of(domain, callback);
  if (!flag) return enable ? result(CUPTI_ERROR_NOT_SUPPORTED) : CUPTI_SUCCESS;
  *flag = enable != 0;
  return result(update_contexts());
}

// A domain is enabled whole or not at all, and of none are all callbacks there.
CUptiResult CUPTIAPI cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle asked, CUpti_CallbackDomain domain) {
  if (!is_subscribed(asked)) return result(CUPTI_ERROR_INVALID_PARAMETER);
  if (enable) return result(CUPTI_ERROR_NOT_SUPPORTED);
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return CUPTI_SUCCESS;
  subscriber().created = subscriber().ends = false;
  return result(update_contexts());
}

CUptiResult CUPTIAPI cuptiGetCallbackState(uint32_t* enabled, CUpti_SubscriberHandle asked, CUpti_CallbackDomain domain,
                                           CUpti_CallbackId callback) {
  if (!enabled || !is_subscribed(asked)) return result(CUPTI_ERROR_INVALID_PARAMETER);
  const std::atomic<bool>* const flag = flag_of(domain, callback);
  *enabled = flag && *flag;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t callback, const char** name) {
  if (!name) return result(CUPTI_ERROR_INVALID_PARAMETER);
  const char* found = nullptr;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) found = name_of(driver_callbacks, driver_callbacks_count, callback);
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) found = name_of(runtime_callbacks, runtime_callbacks_count, callback);
  if (!found) return result(CUPTI_ERROR_INVALID_PARAMETER);
  *name = found;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiFinalize(void) {
  stop();
  Buffers::get().flush();
  end_subscription();
  Clock::get().use(nullptr);
  return CUPTI_SUCCESS;
}

}  // extern "C"
