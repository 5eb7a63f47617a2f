#include "common/address.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/random.h"

namespace tutti {
namespace {

TEST(SocketAddress, IsReadAsPeopleWriteItAndWrittenSo) {
  for (const std::string text : {"node7:29500", "node-7.cluster.example:1", "10.0.0.1:65535",
                                 "[::1]:29500", "[fe80::1%eth0]:29500"}) {
    const auto address = parse_socket_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(to_text(*address), text);
  }
  EXPECT_EQ(parse_socket_address("[fe80::1%eth0]:29500")->host, "fe80::1%eth0");
}

TEST(SocketAddress, IsNothingElse) {
  for (const std::string text :
       {"", ":", "node7", "node7:", ":29500", "node7:0", "node7:65536", "node7:-1", "node7:http",
        "node7:29500 ", "no de:1", "node/7:1", "::1:29500", "[::1:29500", "::1]:29500", "[]:1",
        "[node7]:1", "user@node7:1", "node7:1:2"})
    EXPECT_FALSE(parse_socket_address(text)) << text;
  EXPECT_FALSE(parse_socket_address(std::string(256, 'a') + ":1"));
}

TEST(SocketAddress, ComesBackFromWhateverTextItWasReadFrom) {
  SeededRandom random(1);
  constexpr std::string_view kLetters = "a0.:[]%-/ \xff";
  for (int i = 0; i < 100'000; ++i) {
    std::string text;
    for (std::uint64_t length = random.next() % 12; length-- > 0;)
      text += kLetters[random.next() % kLetters.size()];
    const auto address = parse_socket_address(text + ":80");
    EXPECT_TRUE(!address || parse_socket_address(to_text(*address)) == address) << text;
  }
}

TEST(SocketAddress, IsTakenFromEachLineThatIsOne) {
  const std::vector<SocketAddress> two{{"a", 1}, {"::1", 2}};
  EXPECT_EQ(parse_socket_addresses("a:1\n\nno address\n[::1]:2"), two);
  EXPECT_EQ(parse_socket_addresses("\na:1\n[::1]:2\n"), two);
  EXPECT_TRUE(parse_socket_addresses("").empty());
}

}  // namespace
}  // namespace tutti
