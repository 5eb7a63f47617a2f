#include "transport/local/local.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>

#include <tutti/error.hpp>

#include "transport/registry.h"

namespace tutti {
namespace {

TransportContext context_of(const std::shared_ptr<local::Hub>& hub, int rank) {
  TransportContext context;
  context.rank = rank;
  context.size = hub->size();
  context.hub = hub;
  return context;
}

TEST(LocalTransport, OneThreadDrivesBothEndsOfAChannel) {
  const auto hub = std::make_shared<local::Hub>(2);
  const auto a = make_transport("local", context_of(hub, 0));
  const auto b = make_transport("auto", context_of(hub, 1));
  const std::vector<std::string> addresses{a->address(), b->address()};
  a->connect(addresses, TimePoint::max());
  b->connect(addresses, TimePoint::max());

  const std::string_view text = "a message of more than forty bytes, so in the ring";
  const Span span = a->sender(1, 3).acquire(text.size()).value();
  std::memcpy(span.data, text.data(), text.size());
  a->sender(1, 3).post({7, 8, static_cast<std::uint32_t>(text.size()), 9});

  const Message message = b->receiver(0, 3).peek().value();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(message.data), message.header.length),
            text);
  EXPECT_EQ(message.header, (Header{7, 8, static_cast<std::uint32_t>(text.size()), 9}));
}

TEST(LocalTransport, ConnectNamesTheRanksThatNeverCame) {
  const auto hub = std::make_shared<local::Hub>(3);
  const auto transport = make_transport("local", context_of(hub, 1));
  try {
    transport->connect(std::vector<std::string>(3), TimePoint{});
    FAIL() << "connect returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_NE(std::string_view(error.what()).find("never came: 0, 2"), std::string_view::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tutti
