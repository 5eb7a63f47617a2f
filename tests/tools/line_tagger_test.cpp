#include "launch/line_tagger.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tutti::tools {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

std::string fed(LineTagger& tagger, std::string_view bytes) {
  std::string out;
  tagger.feed(bytes, out);
  return out;
}

std::string finished(LineTagger& tagger) {
  std::string out;
  tagger.finish(out);
  return out;
}

std::string shown(LineTagger& tagger) {
  std::string out;
  tagger.show_progress(out);
  return out;
}

TEST(LineTagger, PutsTheRankBeforeEachLine) {
  LineTagger tagger(12);
  EXPECT_EQ(fed(tagger, "a\n\nb c\n"), "[12] a\n[12] \n[12] b c\n");
  EXPECT_EQ(finished(tagger), "");
}

TEST(LineTagger, HoldsAnUnfinishedLineUntilItEnds) {
  LineTagger tagger(2);
  EXPECT_EQ(fed(tagger, "first ha"), "");
  EXPECT_EQ(shown(tagger), "");
  EXPECT_EQ(fed(tagger, "lf\nsecond"), "[2] first half\n");
  EXPECT_EQ(finished(tagger), "[2] second\n");
  EXPECT_EQ(finished(tagger), "");
}

TEST(LineTagger, AnyCutOfTheBytesGivesTheSameLines) {
  const auto text = "one\ntwo\r\n10%\r20%\rdone\n\r\n\0\x80\xff\nlast"s;
  LineTagger whole(0);
  std::string expected = fed(whole, text);
  expected += finished(whole);
  EXPECT_EQ(expected, "[0] one\n[0] two\r\n[0] done\n[0] \r\n[0] \0\x80\xff\n[0] last\n"s);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    LineTagger tagger(0);
    std::string out = fed(tagger, std::string_view(text).substr(0, cut));
    out += fed(tagger, std::string_view(text).substr(cut));
    out += finished(tagger);
    EXPECT_EQ(out, expected) << "cut at " << cut;
  }
}

TEST(LineTagger, BreaksALineThatExceedsItsBoundAndMarksTheRest) {
  LineTagger tagger(1);
  const std::string line(2 * LineTagger::kLineBytesMax + 10, 'x');
  const std::string full(LineTagger::kLineBytesMax, 'x');
  EXPECT_EQ(fed(tagger, line + "\nnext\n"),
            "[1] " + full + "\n[1]+" + full + "\n[1]+xxxxxxxxxx\n[1] next\n");
  EXPECT_EQ(fed(tagger, full + "\n"), "[1] " + full + "\n");
}

TEST(LineTagger, ShowsWhatStandsThereOfAProgressBar) {
  LineTagger tagger(0);
  EXPECT_EQ(fed(tagger, "\r10%\r20%"), "");
  EXPECT_TRUE(tagger.holds_progress());
  EXPECT_EQ(shown(tagger), "[0] 20%\n");
  EXPECT_FALSE(tagger.holds_progress());
  EXPECT_EQ(fed(tagger, "\r30%\r40%\r"), "");
  EXPECT_EQ(shown(tagger), "[0] 40%\n");
  EXPECT_EQ(shown(tagger), "");
  EXPECT_EQ(fed(tagger, "50%"), "");
  EXPECT_EQ(fed(tagger, "\n"), "[0] 50%\n");
}

TEST(LineTagger, GoesOnWithALineThatWasShownBeforeItsEnd) {
  LineTagger tagger(0);
  EXPECT_EQ(fed(tagger, "\rwait"), "");
  EXPECT_EQ(shown(tagger), "[0] wait\n");
  EXPECT_EQ(fed(tagger, "ing\n"), "[0]+ing\n");
  EXPECT_EQ(fed(tagger, "\r90%"), "");
  EXPECT_EQ(shown(tagger), "[0] 90%\n");
  EXPECT_EQ(fed(tagger, "\n"), "") << "all of the line has been shown";
  EXPECT_EQ(fed(tagger, "\n"), "[0] \n");
}

}  // namespace
}  // namespace tutti::tools
