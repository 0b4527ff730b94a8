// The words of the scheduler: times, engines, shares, requests, answers.
//
// Source: "virtual GPU" with compute and memory bandwidth, Gdev (USENIX ATC 2012), section 5.2.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "vgpu-sched/engine.h"

namespace bandsaw::sched {

// Nanoseconds, of any clock that does not run backwards; the caller brings it.
using Time = std::int64_t;
inline constexpr Time kMicrosecond = 1000;
inline constexpr Time kMillisecond = 1000 * kMicrosecond;
inline constexpr Time kSecond = 1000 * kMillisecond;
// Longer than any time slice or run: times above are refused, so that sums cannot overflow.
inline constexpr Time kLongest = std::numeric_limits<Time>::max() / 1024;

using VgpuId = std::uint32_t;
// Chosen by the caller; unique among the requests which one virtual GPU has waiting or in flight.
using RequestId = std::uint64_t;

using bandsaw::Engine;

// Single device queue: one queue for everything. Multiple resource queues: a queue for each engine.
enum class QueueModel : std::uint8_t { kSdq, kMrq };

// What a virtual GPU may have of the engines behind a queue. All but the priority in percent of the engine's time.
struct Share {
  int percent = 0;      // 1 to 100: its part when everybody wants the engine; weight for what others leave
  int reservation = 0;  // 0 to 100: the least it gets while it has work, whatever the others' weights
  int cap = 100;        // 1 to 100: the most it gets, even of an idle engine; 100 is no cap
  int priority = 0;     // higher goes first, among those that are owed time; never more than its part

  bool operator==(const Share&) const = default;
};

// A time slice of work that asks for the engine: a kernel, a part of one, a graph launch, a copy.
struct Request {
  RequestId id = 0;
  VgpuId vgpu = 0;
  Engine engine = Engine::kCompute;
  Time estimate = 0;  // of its length; 0: unknown, the virtual GPU's typical length is taken
  int priority = 0;   // within its virtual GPU: higher first, equal ones in order of arrival
};

enum class Error : std::uint8_t {
  kNone,
  kUnknownVgpu,
  kKnownVgpu,       // added twice
  kUnknownRequest,  // completed or cancelled without being there
  kKnownRequest,    // arrived twice
  kBadShare,        // a value out of its range, or a reservation above the cap
  kOversubscribed,  // the sum of the parts or of the reservations would exceed 100
  kBadTime,         // negative, or above kLongest
};

std::string_view describe(Error error);

// What is to be done now. kDispatch: send `request` to the device, and ask again. kHold: nothing before the next
// event. kWait: nothing before the next event, or `until`, then ask again.
struct Answer {
  enum class Kind : std::uint8_t { kHold, kDispatch, kWait };
  Kind kind = Kind::kHold;
  Request request;
  Time until = 0;
};

}  // namespace bandsaw::sched
