#include <gtest/gtest.h>

#include <chrono>

#include "transport/mesh/group.h"

namespace tutti::mesh {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint kBegin{std::chrono::hours{1}};

StatusPageBytes bytes_of(StatusPageState state) {
  StatusPage page{};
  page.state = state;
  return read_status_page(page);
}

TEST(PeerPage, IsNotThereBeforeItHasArrived) {
  const PeerPage page;
  EXPECT_FALSE(page.received());
  EXPECT_EQ(page.fresh(kBegin, false), nullptr);
  EXPECT_EQ(page.recent(kBegin, false), nullptr);
  EXPECT_EQ(page.fresh(kBegin, true), nullptr) << "and never will be";
}

TEST(PeerPage, BecomesTooOldForThoseWhoNeedANewOneFirst) {
  PeerPage page;
  page.receive(bytes_of(StatusPageState::open), kBegin);
  EXPECT_TRUE(page.received());
  EXPECT_EQ(page.fresh(kBegin, false), &page.page());
  EXPECT_EQ(page.fresh(kBegin + milliseconds{2}, false), nullptr);
  EXPECT_EQ(page.recent(kBegin + milliseconds{1499}, false), &page.page());
  EXPECT_EQ(page.recent(kBegin + milliseconds{1500}, false), nullptr);
}

TEST(PeerPage, BehindWhichNoOtherCanComeNeverBecomesTooOld) {
  PeerPage open, closed;
  open.receive(bytes_of(StatusPageState::open), kBegin);
  closed.receive(bytes_of(StatusPageState::closed), kBegin);
  const TimePoint later = kBegin + std::chrono::hours{1};
  EXPECT_EQ(open.fresh(later, false), nullptr);
  EXPECT_EQ(open.fresh(later, true), &open.page());
  EXPECT_EQ(open.recent(later, true), &open.page());
  EXPECT_EQ(closed.fresh(later, false), &closed.page());
}

TEST(PeerPage, IsRequestedOnceUntilItArrives) {
  PeerPage page;
  EXPECT_TRUE(page.request());
  EXPECT_FALSE(page.request());
  page.receive(bytes_of(StatusPageState::open), kBegin);
  EXPECT_TRUE(page.request());
}

}  // namespace
}  // namespace tutti::mesh
