// Drives the real tutti-info.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "command.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

/// `variables`: NAME=VALUE, for its environment.
struct Info {
  explicit Info(std::vector<std::string> arguments, std::vector<std::string> variables = {}) {
    arguments.insert(arguments.begin(), TUTTI_INFO);
    variables.insert(variables.begin(), "env");
    arguments.insert(arguments.begin(), variables.begin(), variables.end());
    Command command(arguments);
    status = command.wait();
    out = command.out();
    err = command.err();
  }
  int status;
  std::string out, err;
};

TEST(TuttiInfo, SaysWhatTheBuildIs) {
  const Info info({});
  EXPECT_EQ(info.status, 0);
  EXPECT_THAT(info.out, AllOf(HasSubstr("tutti " + std::string(version())), HasSubstr("compiler"),
                              HasSubstr("build type")));
  EXPECT_THAT(info.err, IsEmpty());
}

TEST(TuttiInfo, ShowsEachKnobWithItsValueAndWhereThatCameFrom) {
  const Info info({"--config"}, {"TUTTI_MESSAGE_BYTES=65536"});
  EXPECT_EQ(info.status, 0);
  EXPECT_THAT(info.out, ContainsRegex("TUTTI_MESSAGE_BYTES +64K +environment +0 "));
  EXPECT_THAT(info.out, ContainsRegex("TUTTI_LOG_LEVEL +warn +default +warn "));
}

TEST(TuttiInfo, PrintsTheSameAsJson) {
  const Info info({"--config", "--json"}, {"TUTTI_SPIN_POLLS=7"});
  EXPECT_EQ(info.status, 0);
  const auto json = nlohmann::json::parse(info.out);
  EXPECT_EQ(json["version"], version());
  for (const auto& knob : json["config"]) {
    const bool set = knob["name"] == "spin_polls";
    EXPECT_EQ(knob["source"], set ? "environment" : "default");
    if (set) {
      EXPECT_EQ(knob["value"], "7");
    }
  }
  EXPECT_GE(json["config"].size(), 9u);
}

TEST(TuttiInfo, ReportsAWrongSettingOnStandardErrorAndPrintsNothingElse) {
  const Info info({"--config"}, {"TUTTI_SPIN_POLS=7"});
  EXPECT_EQ(info.status, 1);
  EXPECT_THAT(info.out, IsEmpty());
  EXPECT_THAT(info.err, HasSubstr("TUTTI_SPIN_POLLS"));
}

TEST(TuttiInfo, RefusesArgumentsThatItDoesNotKnow) {
  const Info info({"--confg"});
  EXPECT_EQ(info.status, 2);
  EXPECT_THAT(info.err, AllOf(HasSubstr("--confg"), HasSubstr("--help")));
}

TEST(TuttiInfo, ExplainsItself) {
  const Info info({"--help"});
  EXPECT_EQ(info.status, 0);
  EXPECT_THAT(info.out, AllOf(HasSubstr("--config"), HasSubstr("--json"), HasSubstr("Examples")));
}

}  // namespace
}  // namespace tutti::tools
