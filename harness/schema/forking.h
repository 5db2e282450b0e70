// How the driver and the command `serve` of a worker talk, on a Unix socket that keeps messages apart (SOCK_SEQPACKET).
//
// The worker's first message says why it cannot fork workers; it is empty if it can. Each later message is a request of the
// driver for a worker: the arguments of its command line as a JSON array of texts, with the descriptors of ForkDescriptors. The
// answer to a request comes through the status socket of the request, as numbers: first the process that was forked, which leads
// a process group, or the negative errno if there is none, and then, when that process has ended, its status as waitpid() returns
// it. The process is reaped once the driver closes the status socket, so that the driver can send signals to the group until
// then.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace attnbench {

// The descriptors of a request, by their place in the message. Requests for workers that do not take turns end after
// kDiagnostics.
enum ForkDescriptor : size_t { kStatus, kInput, kAnswer, kDiagnostics, kTurnsFrom, kTurnsTo, kMaxForkDescriptors };

// The longest message.
constexpr size_t kMaxForkMessageBytes = size_t{1} << 16;

// Sends a message with descriptors. Returns false, with errno set, if the other side has closed the socket or the message is too
// long.
bool send_message(int socket, const std::string& text, const std::vector<int>& descriptors = {});

struct ForkMessage {
  std::string text;
  std::vector<int> descriptors;  // of the receiver, which closes them; they are closed on exec
};
// Waits for the next message. Returns whether there is one; there is none once the other side has closed the socket.
bool receive_message(int socket, ForkMessage& message);

}  // namespace attnbench
