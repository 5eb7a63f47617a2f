// Tests of what is said where a port cannot be opened.
#include "net/tcp_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

#include <tutti/error.hpp>

#include "tests/common/errors.h"

namespace tutti::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ListenTcp, WithoutDescriptorsNamesTheirLimitAndNoOtherRank) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string why = message_of(ErrorKind::unavailable, [] { listen_tcp({"", 0}); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(why, AllOf(HasSubstr("this rank cannot listen"), HasSubstr("ulimit -n"),
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
