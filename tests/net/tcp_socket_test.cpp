// Tests of what is said where a port cannot be opened.
#include "net/tcp_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <tutti/error.hpp>

#include "tests/common/errors.h"

namespace tutti::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ListenTcp, WithoutDescriptorsNamesTheirLimitAndNoOtherRank) {
  const Error error = error_without_descriptors([] { listen_tcp({"", 0}); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("this rank cannot listen"), HasSubstr("ulimit -n"),
                                  Not(HasSubstr("MASTER_ADDR"))));
}

TEST(ListenTcp, AtAPortInUseSaysSoOfRank0) {
  const Fd first = listen_tcp({"127.0.0.1", 0});
  const int port = port_of(first);
  EXPECT_THAT(message_of(ErrorKind::unavailable,
                         [&] {
                           listen_tcp({"127.0.0.1", port});
                         }),
              AllOf(HasSubstr("rank 0 cannot listen at 127.0.0.1:" + std::to_string(port)),
                    HasSubstr("the port is in use"), Not(HasSubstr("MASTER_ADDR"))));
}

}  // namespace
}  // namespace tutti::net
