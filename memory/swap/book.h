// More memory than a virtual GPU holds of its device: allocations are made of chunks, and each chunk lies on the device
// or in the host's memory, at the same address. What a device tells of its chunks, and how it places new ones.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace bandsaw::swap {

// Larger ones would wait long for their copies, smaller ones would be many.
inline constexpr uint64_t kLargestChunk = 32u << 20;

// Part of an allocation, from its beginning.
struct Piece {
  uint64_t offset = 0, bytes = 0;
  bool on_device = true;
};

// Chunks that are to move, named by their addresses, which they keep: in this order `out` to host memory and `in` to
// the device. They are charged where they come. What has been freed meanwhile is left out.
struct Moves {
  std::vector<uint64_t> out, in;
  uint64_t room = 0;                                            // bytes that may come before anything has gone
  std::function<void(uint64_t address, bool to_device)> moved;  // called for each that has
  // What leaves may be left with nothing at its address, which is sooner: nothing reaches it there before the device is
  // asked for it.
  bool apart = false;
};

// Whoever decides where chunks lie, as the device sees it. Thread-safe; the device may hold locks of its own.
class Book {
 public:
  virtual ~Book() = default;
  // Of allocations that are made now, in bytes, at most kLargestChunk; 0: they are not divided, and all of them lies on
  // the device.
  virtual uint64_t chunk_bytes() const = 0;
  // Reserves memory on the device or the host for a chunk (above 0), or gives it back (below 0). False: no room there,
  // and nothing has changed.
  virtual bool charge(int64_t bytes, bool on_device) = 0;
  // The bytes of a chunk count at the other place from now on. False: no room there, and nothing has changed.
  virtual bool charge_move(uint64_t bytes, bool to_device) = 0;
  // A chunk on the device and one in host memory, of so many bytes each, have changed places: as much counts at both.
  virtual void exchanged(uint64_t bytes) = 0;
  // A chunk of the allocation that begins at `allocation`; charged already.
  virtual void add(uint64_t allocation, uint64_t address, uint64_t bytes, bool on_device) = 0;
  virtual void remove(uint64_t address) = 0;
  // Host memory of no chunk that is kept for the next one that leaves the device: counts it (above 0), or gives it back
  // (below 0). False: no more may be kept.
  virtual bool keep(int64_t bytes) = 0;
  // Host memory was made for a chunk that leaves, or ahead of that.
  virtual void made(uint64_t bytes) = 0;
  // Others use it where it is: it moves no more.
  virtual void pin(uint64_t address) = 0;
};

// Divides an allocation of `bytes` bytes into chunks of multiples of `unit` (only the last may be odd) and charges
// them: on the device as far as there is room, else in host memory. Empty: there is not so much room, and nothing is
// charged.
std::vector<Piece> place(Book& book, uint64_t bytes, uint64_t unit);
// Gives back what place() charged.
void give_back(Book& book, const std::vector<Piece>& pieces);

}  // namespace bandsaw::swap
