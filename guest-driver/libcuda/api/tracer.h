// What the program's calls put on streams, measured: for BANDSAW_TRACE's file and for a profiler's library.
//
// A call is timed on the host. Work of the device lies between two events of the tracer's on its stream, so the device
// measures it, with the time that it waits for its turn. Work that is captured, or issued while anything is captured,
// is not measured.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "guest-driver/libcuda/api/trace_file.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/wire_tracer.h"
#include "guest-driver/uapi/trace_table.h"

namespace bandsaw::libcuda {

class Call;

// A piece of work: what one wire call puts on an engine.
struct TracedPiece {
  uint64_t stream = 0, begin = 0, end = 0;  // handles; the last two are events
  uint64_t id = 0;                          // of the piece
  uint64_t call_begin_ns = 0;               // no work begins before the call that issues it
  std::string title;                        // for people
  std::string kernel;                       // as in the image
  bandsaw_traced_work work{};               // without `name` and times
};

// Fills title, kernel and work from a wire call.
void describe_work(wire::Opcode opcode, uint64_t context, const EngineWork& work, TracedPiece* piece);

// Thread-safe. Made once, never freed.
class Tracer : public WireTracer {
 public:
  // False: `path` cannot be written, and errno says why.
  bool open(const char* path);
  // What is told of calls and work from now on; nullptr: nobody. It must live on.
  void listen(const bandsaw_trace_listener* listener);
  // Whether anybody ever wants anything.
  bool idle() const { return !listener_.load() && !writes_; }
  // Tells of what is done; waits up to 2 s for all that was issued.
  void flush(bool wait);
  // Reads what is measured of a context, and forgets its events, which end with it.
  void context_ends(Context* context);
  void program_ends();

  bool call_begins(const char* entry) override;
  void call_ends() override;
  void refused(CUresult result) override;
  void waits(const Awaited& awaited) override;
  void context_created(Context* context) override;
  uint64_t begins(wire::Opcode opcode, uint64_t context, const EngineWork* work) override;
  void ends(uint64_t span) override;

 private:
  // A context's events, and one whose time is known on the host's clock.
  struct Events {
    uint64_t base = 0;
    uint64_t base_ns = 0;
    std::vector<uint64_t> free;
    std::deque<TracedPiece> pending;
  };
  // The pieces of a call, which its listener hears of as one.
  struct Joined {
    TracedPiece first;
    unsigned read = 0;      // pieces whose times are known, or lost
    unsigned measured = 0;  // those that are known
    unsigned issued = 0;    // 0: the call has not ended
  };

  uint64_t mark() const;
  void begin_work(uint64_t context, const EngineWork& work);
  void end_work();
  uint64_t take_event(uint64_t context, Events* events);
  bool set_base(uint64_t context, Events* events);
  size_t read_done(uint64_t context, Events* events);
  void read_first(Call& call, Events* events);
  bool read_done_of_all();
  void join(TracedPiece piece, uint64_t begin_ns, uint64_t end_ns);
  void tell(uint64_t call, Joined* joined);
  void lose(uint64_t call);
  void say_lost();
  void forget(uint64_t context);

  TraceFile file_;
  bool writes_ = false;
  std::atomic<const bandsaw_trace_listener*> listener_{nullptr};
  std::mutex mutex_;  // of the rest
  std::map<uint64_t, Events> contexts_;
  std::map<uint64_t, Joined> joined_;  // by call
  uint64_t last_piece_ = 0;
  uint64_t lost_ = 0;  // since it was said last
};

}  // namespace bandsaw::libcuda
