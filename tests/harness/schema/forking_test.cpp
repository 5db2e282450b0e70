// Tests of the messages between driver and fork server.
#include "harness/schema/forking.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace attnbench {
namespace {

class Forking : public testing::Test {
 protected:
  Forking() { socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_.data()); }
  ~Forking() override {
    for (const int end : ends_) close(end);
  }

  std::array<int, 2> ends_{};
};

TEST_F(Forking, MessagesArriveOneByOneAlsoAnEmptyOne) {
  ASSERT_TRUE(send_message(ends_[0], "first"));
  ASSERT_TRUE(send_message(ends_[0], ""));
  ForkMessage message;
  ASSERT_TRUE(receive_message(ends_[1], message));
  EXPECT_EQ(message.text, "first");
  ASSERT_TRUE(receive_message(ends_[1], message));
  EXPECT_EQ(message.text, "");
}

TEST_F(Forking, ADescriptorThatArrivesLeadsToTheSameFile) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  ASSERT_TRUE(send_message(ends_[0], "[]", {pipe_ends[0], pipe_ends[1]}));
  ForkMessage message;
  ASSERT_TRUE(receive_message(ends_[1], message));
  ASSERT_EQ(message.descriptors.size(), 2u);
  ASSERT_EQ(write(message.descriptors[1], "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  for (const int descriptor : {pipe_ends[0], pipe_ends[1], message.descriptors[0], message.descriptors[1]}) close(descriptor);
}

TEST_F(Forking, AClosedSocketEndsTheMessagesAndTakesNoMore) {
  shutdown(ends_[0], SHUT_RDWR);
  ForkMessage message;
  EXPECT_FALSE(receive_message(ends_[1], message));
  EXPECT_FALSE(send_message(ends_[1], "late"));
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(Forking, AMessageThatIsTooLongIsNotSent) {
  EXPECT_FALSE(send_message(ends_[0], std::string(kMaxForkMessageBytes + 1, 'x')));
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_TRUE(send_message(ends_[0], std::string(kMaxForkMessageBytes, 'x')));
  ForkMessage message;
  ASSERT_TRUE(receive_message(ends_[1], message));
  EXPECT_EQ(message.text.size(), kMaxForkMessageBytes);
}

}  // namespace
}  // namespace attnbench
