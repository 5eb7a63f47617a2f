#include "common/text.h"

#include <gtest/gtest.h>

#include <tutti/error.hpp>

namespace tutti {
namespace {

TEST(Text, TrimDropsBlanksAtBothEndsAndNoneBetween) {
  EXPECT_EQ(trim(" \t a b\r"), "a b");
  EXPECT_EQ(trim("ab"), "ab");
  EXPECT_EQ(trim(" \t "), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, ShownCutsWhatIsLongAndHidesWhatIsUnprintable) {
  EXPECT_EQ(shown("abc"), "'abc'");
  EXPECT_EQ(shown(std::string_view("a\0\n\x1b[", 5)), "'a???['");
  EXPECT_EQ(shown(std::string(64, 'x')), "'" + std::string(64, 'x') + "'");
  EXPECT_EQ(shown(std::string(65, 'x')), "'" + std::string(64, 'x') + "...'");
}

TEST(Text, EscapeControlsLeavesWhatATerminalShowsAndHidesWhatItObeys) {
  EXPECT_EQ(escape_controls("rank 3:\n\t'caf\xc3\xa9' \xe2\x82\xac"),
            "rank 3:\n\t'caf\xc3\xa9' \xe2\x82\xac");
  EXPECT_EQ(escape_controls("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(escape_controls(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(escape_controls("\xc2\x9b"
                            "2J \xc2\xa9"),
            "\xc2\\x9b"
            "2J \xc2\xa9")
      << "the control CSI";
}

TEST(Text, ErrorsEscapeTheControlsOfWhatOtherProcessesSay) {
  const Error error(ErrorKind::peer_lost, "rank 1 says \x1b]0;title\a");
  EXPECT_STREQ(error.what(), "rank 1 says \\x1b]0;title\\x07");
}

TEST(Text, JoinPutsTheSeparatorBetweenPartsOnly) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join({"a", "", "c"}, ", "), "a, , c");
}

TEST(Text, EditDistanceCountsTheFewestChanges) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("timeout_ms", "timeuot_ms"), 2u);
  EXPECT_EQ(edit_distance("ring_bytes", "ring_byte"), 1u);
}

TEST(Text, ParseNumberTakesAWholeNumberThatFitsAndNothingElse) {
  EXPECT_EQ(parse_number<int>("-17"), -17);
  EXPECT_EQ(parse_number<std::int64_t>("9223372036854775807"), INT64_MAX);
  for (const std::string_view bad : {"", " 1", "1 ", "+1", "1.0", "0x10", "1e3", "2147483648"})
    EXPECT_EQ(parse_number<int>(bad), std::nullopt) << bad;
  EXPECT_EQ(parse_number<unsigned>("-1"), std::nullopt);
}

}  // namespace
}  // namespace tutti
