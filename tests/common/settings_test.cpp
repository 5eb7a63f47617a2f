#include "common/settings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <tutti/error.hpp>

#include "common/knobs.h"
#include "common/random.h"
#include "tests/common/errors.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

using tutti::usage_error;
using Entries = std::vector<std::string>;

Config resolve(const Entries& entries) {
  const std::vector<std::string_view> views(entries.begin(), entries.end());
  return resolve_config(views);
}

std::string usage_error(const Entries& entries) {
  return usage_error([&] { resolve(entries); });
}

/// A configuration file that is removed at the end of its scope.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view text, mode_t mode = 0600)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("tutti-config-test-{}.conf", getpid())) {
    std::ofstream(path_, std::ios::binary) << text;
    chmod(path_.c_str(), mode);
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::string path() const { return path_.string(); }
  std::string entry() const { return "TUTTI_CONFIG_FILE=" + path(); }

 private:
  const std::filesystem::path path_;
};

std::string source_of(const Config& resolved, std::string_view name) {
  for (const Setting& setting : list_settings(resolved))
    if (setting.name == name) return setting.source;
  return "no such setting";
}

TEST(Config, IsTheDefaultsWhereNothingIsSet) {
  const Config resolved = resolve({"HOME=/root", "TUTTI=1", "XTUTTI_TIMEOUT_MS=5"});
  EXPECT_EQ(resolved.transports, "auto");
  EXPECT_EQ(resolved.timeout, milliseconds(300'000));
  EXPECT_EQ(source_of(resolved, "timeout_ms"), "default");
}

TEST(Config, DefaultsAreWithinTheirRanges) { EXPECT_NO_THROW(check_config(Config{})); }

TEST(Config, ReadsEveryKnobFromTheEnvironment) {
  const Config config = resolve({"TUTTI_TRANSPORTS=shm, local",
                                 "TUTTI_ALGORITHM=ring",
                                 "TUTTI_TIMEOUT_MS=1",
                                 "TUTTI_STARTUP_TIMEOUT_MS=86400000",
                                 "TUTTI_MESSAGE_BYTES=64K",
                                 "TUTTI_RING_BYTES=1m",
                                 "TUTTI_SPIN_POLLS=-1",
                                 "TUTTI_LOG_LEVEL=debug",
                                 "TUTTI_ACCUMULATE=f32",
                                 "TUTTI_GROUP_SIZE=4",
                                 "TUTTI_BIND=0-1,2",
                                 "TUTTI_DEVICE=3",
                                 "TUTTI_STORE=tcp://[::1]:29500",
                                 "TUTTI_SECRET=0123456789abcdef",
                                 "TUTTI_SECRET_FILE=/run/secret",
                                 "TUTTI_TRUST_NETWORK=yes",
                                 "TUTTI_TLS=1",
                                 "TUTTI_CHECKSUM=1",
                                 "TUTTI_TUNING_FILE=/t.json",
                                 "TUTTI_TOPOLOGY_FILE=/t.xml",
                                 "TUTTI_SCHEDULES=/schedules",
                                 "TUTTI_INTERFACES=^docker,lo",
                                 "TUTTI_RDMA_DEVICES=mlx5_1",
                                 "TUTTI_RDMA_PATHS=2",
                                 "TUTTI_RDMA_GID_INDEX=3",
                                 "TUTTI_RDMA_TRAFFIC_CLASS=106",
                                 "TUTTI_RDMA_SERVICE_LEVEL=3",
                                 "TUTTI_RDMA_PKEY_INDEX=1",
                                 "TUTTI_STALL_MS=0",
                                 "TUTTI_THREADS=4",
                                 "TUTTI_TRACE_OPERATIONS=64",
                                 "TUTTI_TRACE_DIR=/traces",
                                 "TUTTI_TRACE_SIGNAL=USR2"});
  EXPECT_EQ(config.transports, "shm,local");
  EXPECT_EQ(config.algorithm, "ring");
  EXPECT_EQ(config.accumulate, Accumulate::f32);
  EXPECT_EQ(config.timeout, milliseconds(1));
  EXPECT_EQ(config.startup_timeout, std::chrono::hours(24));
  EXPECT_EQ(config.stall, milliseconds(0));
  EXPECT_EQ(config.threads, 4);
  EXPECT_EQ(config.trace_operations, 64);
  EXPECT_EQ(config.trace_dir, "/traces");
  EXPECT_EQ(config.trace_signal, "USR2");
  EXPECT_EQ(config.group_size, 4);
  EXPECT_EQ(config.message_bytes, 64u << 10);
  EXPECT_EQ(config.ring_bytes, 1u << 20);
  EXPECT_EQ(config.bind, "0-1,2");
  EXPECT_EQ(config.device, "3");
  EXPECT_EQ(config.tuning_file, "/t.json");
  EXPECT_EQ(config.topology_file, "/t.xml");
  EXPECT_EQ(config.schedules, "/schedules");
  EXPECT_EQ(config.log_level, LogLevel::debug);
  EXPECT_EQ(config.store, "tcp://[::1]:29500");
  EXPECT_EQ(config.secret, "0123456789abcdef");
  EXPECT_EQ(config.secret_file, "/run/secret");
  EXPECT_TRUE(config.trust_network);
  EXPECT_TRUE(config.tls);
  EXPECT_TRUE(config.checksum);
  EXPECT_EQ(config.interfaces, "^docker,lo");
  EXPECT_EQ(config.rdma_devices, "mlx5_1");
  EXPECT_EQ(config.rdma_paths, 2);
  EXPECT_EQ(config.rdma_gid_index, 3);
  EXPECT_EQ(config.rdma_traffic_class, 106);
  EXPECT_EQ(config.rdma_service_level, 3);
  EXPECT_EQ(config.rdma_pkey_index, 1);
  for (const Setting& setting : list_settings(config))
    EXPECT_EQ(setting.source, setting.name == "config_file" ? "default" : "environment")
        << setting.name;
}

TEST(Config, ShowsASecretNowhere) {
  const Config resolved = resolve({"TUTTI_SECRET=0123456789abcdef"});
  for (const Setting& setting : list_settings(resolved))
    EXPECT_EQ(setting.value == "(set, not shown)", setting.name == "secret") << setting.name;
  EXPECT_NO_THROW(check_config(resolved));
  EXPECT_EQ(agree_text(resolved), agree_text(Config{}));
  const std::string error = usage_error({"TUTTI_SECRET=tooshort"});
  EXPECT_THAT(error, HasSubstr("TUTTI_SECRET is not shown"));
  EXPECT_THAT(error, testing::Not(HasSubstr("tooshort")));
}

TEST(Config, LetsTheEnvironmentOverruleTheFile) {
  const TemporaryFile file(
      "# what we use here\n\n  timeout_ms = 1000  # a second\r\nalgorithm=tree\n");
  const Config resolved = resolve({"TUTTI_TIMEOUT_MS=2000", file.entry()});
  EXPECT_EQ(resolved.timeout, milliseconds(2000));
  EXPECT_EQ(resolved.algorithm, "tree");
  EXPECT_EQ(resolved.config_file, file.path());
  EXPECT_EQ(source_of(resolved, "timeout_ms"), "environment");
  EXPECT_EQ(source_of(resolved, "algorithm"), file.path() + ":4");
}

TEST(Config, NamesFileAndLineOfWhatItCannotRead) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"\ntimeout_ms 5\n", ":2: 'timeout_ms 5' is not `name = value`"},
      {"timeout_ms = soon\n", ":1"},
      {"timeout_ms =\n", "timeout_ms is empty"},
      {"\n\ntimeout = 5\n", ":3: unknown setting 'timeout'; the nearest is timeout_ms"},
      {"TIMEOUT_MS = 5\n", "unknown setting"},
      {"spin_polls = 1\nspin_polls = 2\n", ":2: spin_polls is set already at"},
      {"config_file = other.conf\n", "cannot name another"}};
  for (const auto& [text, expected] : cases) {
    const TemporaryFile file(text);
    const std::string error = usage_error(Entries{file.entry()});
    EXPECT_THAT(error, HasSubstr(file.path()));
    EXPECT_THAT(error, HasSubstr(expected));
  }
}

TEST(Config, RefusesAFileThatIsNotThereOrNoPlainFile) {
  EXPECT_THAT(usage_error(Entries{"TUTTI_CONFIG_FILE=/no/such/file"}), HasSubstr("/no/such/file"));
  EXPECT_THAT(usage_error(Entries{"TUTTI_CONFIG_FILE=/"}), HasSubstr("not a plain file"));
  EXPECT_THAT(usage_error(Entries{"TUTTI_CONFIG_FILE=/dev/zero"}), HasSubstr("not a plain file"));
  EXPECT_THAT(usage_error(Entries{"TUTTI_CONFIG_FILE="}), HasSubstr("empty"));
}

TEST(Config, DoesNotBlockOnAPipe) {
  const TemporaryFile name("");
  std::filesystem::remove(name.path());
  ASSERT_EQ(mkfifo(name.path().c_str(), 0600), 0);
  EXPECT_THAT(usage_error(Entries{name.entry()}), HasSubstr("not a plain file"));
}

TEST(Config, TakesASecretOnlyFromAFileThatNobodyElseCanRead) {
  constexpr std::string_view kText = "# the job's\nsecret = 0123456789abcdef\n";
  {
    const TemporaryFile file(kText);
    EXPECT_EQ(resolve({file.entry()}).secret, "0123456789abcdef");
  }
  const TemporaryFile file(kText, 0644);
  const std::string error = usage_error(Entries{file.entry()});
  EXPECT_THAT(error, HasSubstr(file.path() + ":2"));
  EXPECT_THAT(error, HasSubstr("chmod 600"));
  EXPECT_THAT(error, Not(HasSubstr("0123456789abcdef")));
  const TemporaryFile without("timeout_ms = 2000\n", 0644);
  EXPECT_NO_THROW(resolve({without.entry()}));
}

TEST(Config, RefusesAFileOfUnreasonableSize) {
  const TemporaryFile file(std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(usage_error(Entries{file.entry()}), HasSubstr("too large"));
}

TEST(Config, SurvivesFilesOfRandomBytes) {
  SeededRandom random(99);
  const std::string alphabet = "timeout_ms=19\n# \t\rK\xff\x00";
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (std::uint64_t n = random.next() % 100; n-- > 0;)
      text += alphabet[random.next() % alphabet.size()];
    const TemporaryFile file(text);
    try {
      resolve({file.entry()});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
    }
  }
}

TEST(Config, NamesTheNearestKnobForAVariableThatItDoesNotKnow) {
  EXPECT_THAT(usage_error(Entries{"TUTTI_TIMEUOT_MS=5"}),
              AllOf(HasSubstr("'TUTTI_TIMEUOT_MS'"), HasSubstr("is TUTTI_TIMEOUT_MS")));
  EXPECT_THAT(usage_error(Entries{"TUTTI_RING=5"}), HasSubstr("TUTTI_RING_BYTES"));
  EXPECT_THAT(usage_error(Entries{"TUTTI_log_level=warn"}), HasSubstr("TUTTI_LOG_LEVEL"));
  EXPECT_THAT(usage_error(Entries{"TUTTI_=1"}), HasSubstr("unknown environment variable"));
  EXPECT_THAT(usage_error(Entries{"TUTTI_COLOUR_OF_THE_SKY=blue"}),
              AllOf(HasSubstr("tutti-info --config lists all"), Not(HasSubstr("nearest"))));
}

TEST(Config, PassesOverEntriesOfTheEnvironmentThatAreNoVariables) {
  EXPECT_EQ(resolve({"TUTTI_TIMEOUT_MS", "TUTTI_TIMEOUT_MS=5"}).timeout, milliseconds(5));
}

TEST(Config, LeavesVariablesOfTestsAlone) {
  EXPECT_NO_THROW(resolve({"TUTTI_TEST_ANYTHING=at all"}));
}

TEST(Config, CountsTheFirstOfTwoEntriesOfOneNameAsGetenvDoes) {
  EXPECT_EQ(resolve({"TUTTI_SPIN_POLLS=1", "TUTTI_SPIN_POLLS=2"}).spin_polls, 1);
}

TEST(Config, NamesKnobValueAndRangeOfWhatIsOutOfRange) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"TUTTI_TIMEOUT_MS=0", "1..86400000"},
      {"TUTTI_TIMEOUT_MS=86400001", "1..86400000"},
      {"TUTTI_TIMEOUT_MS=10s", "milliseconds"},
      {"TUTTI_STARTUP_TIMEOUT_MS=-5", "1..86400000"},
      {"TUTTI_MESSAGE_BYTES=4095", "0 or 4K..64M, a multiple of 64"},
      {"TUTTI_MESSAGE_BYTES=4097", "multiple of 64"},
      {"TUTTI_MESSAGE_BYTES=65M", "64M"},
      {"TUTTI_MESSAGE_BYTES=99999999999G", "64M"},
      {"TUTTI_MESSAGE_BYTES=K", "64M"},
      {"TUTTI_RING_BYTES=11K", "0 or 12K..1G"},
      {"TUTTI_RING_BYTES=2G", "0 or 12K..1G"},
      {"TUTTI_SPIN_POLLS=-2", "-1..1000000000"},
      {"TUTTI_LOG_LEVEL=verbose", "error, warn, info or debug"},
      {"TUTTI_ALGORITHM=ring,tree", "auto, or a name"},
      {"TUTTI_TRANSPORTS=shm,", "names"},
      {"TUTTI_TRANSPORTS=SHM", "names"},
      {"TUTTI_DEVICE=gpu", "none, rank, or a number from 0 on"},
      {"TUTTI_DEVICE=-1", "none, rank, or a number from 0 on"},
      {"TUTTI_SPIN_POLLS=", "is empty"}};
  for (const auto& [entry, expected] : cases) {
    const std::string error = usage_error(Entries{entry});
    const std::size_t equals = entry.find('=');
    EXPECT_THAT(error, HasSubstr(entry.substr(0, equals))) << entry;
    EXPECT_THAT(error, HasSubstr(entry.substr(equals + 1))) << entry;
    EXPECT_THAT(error, HasSubstr(expected)) << entry;
  }
}

TEST(Config, RefusesARingThatDoesNotHoldThreeMessages) {
  const std::string error =
      usage_error(Entries{"TUTTI_MESSAGE_BYTES=1M", "TUTTI_RING_BYTES=3145664"});
  EXPECT_THAT(error, AllOf(HasSubstr("ring_bytes"), HasSubstr("message_bytes is 1M"),
                           HasSubstr("at least 3M")));
  EXPECT_NO_THROW(resolve({"TUTTI_MESSAGE_BYTES=1M", "TUTTI_RING_BYTES=3M"}));
  EXPECT_NO_THROW(resolve({"TUTTI_MESSAGE_BYTES=1M", "TUTTI_RING_BYTES=0"}));
}

TEST(Config, ChecksWhatAProgramHasFilledIn) {
  Config config;
  config.timeout = milliseconds(0);
  EXPECT_THAT(usage_error([&] { check_config(config); }),
              AllOf(HasSubstr("timeout_ms is '0'"), HasSubstr("the program")));
  config = {};
  config.transports = "";
  EXPECT_THAT(usage_error([&] { check_config(config); }), HasSubstr("transports is empty"));
  config = {};
  config.message_bytes = 1 << 20;
  config.ring_bytes = 1 << 20;
  EXPECT_THAT(usage_error([&] { check_config(config); }), HasSubstr("ring"));
  config = {};
  config.log_level = static_cast<LogLevel>(17);
  EXPECT_THAT(usage_error([&] { check_config(config); }), HasSubstr("log_level"));
  config = {};
  config.accumulate = Accumulate::as_configured;
  EXPECT_THAT(usage_error([&] { check_config(config); }),
              HasSubstr("it must be step, f32 or reproducible"));
}

TEST(Config, SetsASettingByItsNameWithTheChecksOfAFile) {
  Config config;
  config.set("message_bytes", "64K").set("tls", "yes").set("bind", "0-1,2");
  EXPECT_EQ(config.message_bytes, 64u << 10);
  EXPECT_TRUE(config.tls);
  EXPECT_EQ(config.bind, "0-1,2");
  EXPECT_EQ(usage_error([&] { config.set("timeout_ms", "soon"); }),
            "timeout_ms is 'soon' (from the program); it must be 1..86400000 milliseconds");
  EXPECT_EQ(usage_error([&] { config.set("timeout", "5"); }),
            "unknown setting 'timeout'; the nearest is timeout_ms");
  EXPECT_EQ(config.timeout, Config().timeout);
  for (const Setting& setting : list_settings(Config())) {
    if (setting.default_value.empty()) continue;
    EXPECT_NO_THROW(config.set(setting.name, setting.default_value)) << setting.name;
  }
}

TEST(Config, SaysWhatTheProgramHasChanged) {
  Config config = resolve({"TUTTI_SPIN_POLLS=3", "TUTTI_STALL_MS=7"});
  config.spin_polls = 4;
  config.set("group_size", "2");
  config.checksum = true;
  for (const Setting& setting : list_settings(config)) {
    const bool changed =
        setting.name == "spin_polls" || setting.name == "group_size" || setting.name == "checksum";
    EXPECT_EQ(setting.source, changed                      ? "program"
                              : setting.name == "stall_ms" ? "environment"
                                                           : "default")
        << setting.name;
  }
}

TEST(Config, ComparesAmongRanksTheSettingsThatMustAgreeAndNoOthers) {
  Config config;
  const std::string before = agree_text(config);
  EXPECT_THAT(before, HasSubstr("message_bytes=0\n"));
  config.timeout = milliseconds(5);
  config.spin_polls = 7;
  config.log_level = LogLevel::debug;
  EXPECT_EQ(agree_text(config), before);
  config.algorithm = "ring";
  EXPECT_THAT(agree_text(config), HasSubstr("algorithm=ring\n"));
}

TEST(Knobs, HaveNamesOfTheirOwnAndASentenceEach) {
  std::set<std::string> names;
  for (const Setting& setting : list_settings(Config())) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_TRUE(setting.sentence.ends_with('.')) << setting.name;
    EXPECT_FALSE(setting.range.empty()) << setting.name;
  }
}

TEST(Knobs, AreListedInTheDocumentationWithTheirDefaultsAndRanges) {
  std::ifstream file(std::string(TUTTI_SOURCE_ROOT) + "/docs/configuration.md");
  std::stringstream text;
  text << file.rdbuf();
  const Config defaults = resolve({});
  for (const Setting& s : list_settings(defaults))
    EXPECT_THAT(text.str(),
                HasSubstr(fmt::format("| `{}` | {} | {} | {} | {} |", s.name, s.default_value,
                                      s.range, s.agree ? "yes" : "", s.sentence)));
}

TEST(Knobs, WriteSizesAsTheyReadThem) {
  EXPECT_EQ(write_bytes(0), "0");
  EXPECT_EQ(write_bytes(1000), "1000");
  EXPECT_EQ(write_bytes(1 << 10), "1K");
  EXPECT_EQ(write_bytes(3 << 20), "3M");
  EXPECT_EQ(write_bytes(1 << 30), "1G");
  EXPECT_EQ(write_bytes((1 << 20) + (1 << 10)), "1025K");
}

}  // namespace
}  // namespace tutti
