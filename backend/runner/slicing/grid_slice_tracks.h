// Streams beside a stream of the program's, on which grid slices of a launch run, so that one fills the device while
// the one before it ends. They begin after what the program's stream has been given, and it goes on after them.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/device/device.h"

namespace bandsaw::runner {

// The tracks of one launch; the first is the program's stream itself.
class GridSliceTracks {
 public:
  GridSliceTracks(Device* device, ContextRef context, const StreamRef& stream)
      : device_(device), context_(std::move(context)), stream_(stream) {}
  ~GridSliceTracks();
  GridSliceTracks(const GridSliceTracks&) = delete;

  // Marks where the stream is: what is put on other tracks comes after that. An error leaves only the stream.
  CUresult fork(const StreamRef& stream);
  // Makes what is not there yet. Null: the device has no more streams, or fork() failed.
  StreamRef at(size_t track);
  // The stream waits for the other tracks that were used since fork().
  CUresult join();
  // What the stream had been given before the launch is done; or it is not known.
  bool has_begun() const;

 private:
  friend class GridSliceTracksPool;
  struct Side {
    StreamRef stream;
    EventRef end;
    bool used = false;
  };

  Device* const device_;
  const std::weak_ptr<Context> context_;
  const std::weak_ptr<Stream> stream_;
  StreamRef forked_;  // the stream, while a launch has the tracks
  EventRef fork_;
  std::vector<Side> sides_;
};

// Keeps tracks for the next launch on the same stream. Thread-safe.
class GridSliceTracksPool {
 public:
  explicit GridSliceTracksPool(Device* device) : device_(device) {}

  // Never null. Of streams that have gone, and of those used longest ago, nothing is kept.
  std::shared_ptr<GridSliceTracks> take(const ContextRef& context, const StreamRef& stream);
  void forget(const Context* context);

 private:
  static constexpr size_t kMost = 16;

  Device* const device_;
  std::mutex mutex_;
  std::list<std::shared_ptr<GridSliceTracks>> kept_;  // guarded by mutex_; the one used last comes first
};

}  // namespace bandsaw::runner
