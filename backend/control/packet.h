// One message of a SOCK_SEQPACKET socket with the descriptors that travel with it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

inline constexpr size_t kPacketFdsMax = 8;

// Sends `head` and `tail` as one message; the receiver gets duplicates of `fds`. Never raises SIGPIPE. A full
// socket gives EAGAIN on a non-blocking one, a message above the socket's buffer EMSGSIZE.
Status send_packet(int socket, std::span<const std::byte> head, std::span<const std::byte> tail,
                   std::span<const int> fds);

// Receives one message into `buffer`, descriptors (close-on-exec) into `fds`, and returns its length; 0 is the end
// of the connection. EMSGSIZE: the message was larger than the buffer and is lost.
Result<size_t> receive_packet(int socket, std::span<std::byte> buffer, std::vector<UniqueFd>* fds);

}  // namespace bandsaw
