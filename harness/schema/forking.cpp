// Sends and receives messages with open files attached, as sendmsg() and recvmsg() pass them.
#include "harness/schema/forking.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace attnbench {
namespace {

using Control = std::array<char, CMSG_SPACE(kMaxForkDescriptors * sizeof(int))>;

}  // namespace

bool send_message(int socket, const std::string& text, const std::vector<int>& descriptors) {
  if (text.size() > kMaxForkMessageBytes || descriptors.size() > kMaxForkDescriptors) {
    errno = EMSGSIZE;
    return false;
  }
  // An empty message could not be told from the end of the connection, so that each message begins with a byte that is left out
  // when it is received.
  auto bytes = ":" + text;
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const auto length = descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(length);
    auto* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(length);
    std::memcpy(CMSG_DATA(header), descriptors.data(), length);
  }
  ssize_t sent = 0;
  do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == ssize_t(bytes.size());
}

bool receive_message(int socket, ForkMessage& received) {
  std::string bytes(kMaxForkMessageBytes + 1, '\0');
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  do count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  received.text = bytes.substr(1, size_t(count) - 1);
  received.descriptors.clear();
  for (auto* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    received.descriptors.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(received.descriptors.data(), CMSG_DATA(header), received.descriptors.size() * sizeof(int));
  }
  return true;
}

}  // namespace attnbench
