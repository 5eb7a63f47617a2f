#include "net/this_machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

namespace tutti::net {
namespace {

TEST(ThisMachine, IsKnownByItsNamesAndAddresses) {
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  const std::string own(host.data());
  for (const std::string& address :
       {std::string("localhost"), std::string("LocalHost"), std::string("127.0.0.1"),
        std::string("127.8.9.10"), std::string("::1"), std::string("0:0:0:0:0:0:0:1"), own})
    EXPECT_TRUE(is_this_machine(address)) << address;
  const bool is_short = own.find('.') == std::string::npos;
  EXPECT_TRUE(is_this_machine(is_short ? own + ".any.domain" : own.substr(0, own.find('.'))));
  EXPECT_FALSE(is_this_machine(own + "x"));
  EXPECT_FALSE(is_this_machine(""));
}

}  // namespace
}  // namespace tutti::net
