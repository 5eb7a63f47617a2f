// Reads and writes tutti's own JSON of schedules.
#include <fmt/format.h>

#include <filesystem>

#include <tutti/error.hpp>

#include "collectives/formats/file_plan.h"
#include "collectives/formats/print.h"
#include "collectives/formats/schedule_file.h"
#include "common/json_file.h"
#include "common/text.h"

namespace tutti {
namespace {

using namespace collectives;

constexpr int kMostIndex = 1 << 30;
constexpr std::int64_t kMostLanes = 1 << 16, kMostOperandsRead = 1 << 16;

/// Reads schedules, and counts their steps over all ranks.
class ScheduleReader {
 public:
  Schedule schedule(const JsonValue& value) {
    value.allow_only({"collective", "layout", "rank", "ranks", "root", "chunks", "scratch_chunks",
                      "widest", "lanes"});
    Schedule schedule;
    schedule.what = collective(value.at("collective"));
    schedule.layout = layout(value.at("layout"));
    schedule.rank = number(value, "rank", 0);
    schedule.ranks = number(value, "ranks", 1);
    schedule.root = number(value, "root", 0);
    schedule.chunks = number(value, "chunks", 1);
    schedule.scratch_chunks = number(value, "scratch_chunks", 0);
    schedule.widest = number(value, "widest", 1);
    const JsonValue lanes = value.at("lanes");
    for (std::size_t at = 0; at < lanes.size(kMostLanes); ++at)
      schedule.lanes.push_back(lane(lanes.element(at)));
    return schedule;
  }

 private:
  static int number(const JsonValue& value, const char* key, int least) {
    return static_cast<int>(value.number(key, least, kMostIndex));
  }

  static Collective collective(const JsonValue& value) {
    const std::string name = value.text();
    for (int what = 0; what < kCollectives; ++what)
      if (to_string(static_cast<Collective>(what)) == name) return static_cast<Collective>(what);
    value.fail(fmt::format("no collective is called {}", shown(name)));
  }

  static Layout layout(const JsonValue& value) {
    const std::string name = value.text();
    if (name == "whole") return Layout::whole;
    if (name != "blocks") value.fail(fmt::format("no layout is called {}", shown(name)));
    return Layout::blocks;
  }

  Lane lane(const JsonValue& value) {
    value.allow_only({"receives_on", "sends_on", "steps"});
    Lane lane{number(value, "receives_on", 0), number(value, "sends_on", 0), {}};
    const JsonValue steps = value.at("steps");
    const std::size_t count = steps.size(kMostFileSteps);
    if ((steps_ += count) > kMostFileSteps)
      steps.fail(fmt::format("there are more than {} steps", kMostFileSteps));
    for (std::size_t at = 0; at < count; ++at) lane.steps.push_back(step(steps.element(at)));
    return lane;
  }

  static Step step(const JsonValue& value) {
    value.allow_only({"in", "out", "chunk", "count", "completes", "after"});
    Step step;
    step.in = operands(value.at("in"));
    step.out = operands(value.at("out"));
    step.chunk = number(value, "chunk", kAnyChunk);
    step.count = number(value, "count", 1);
    step.completes = value.at("completes").boolean();
    const JsonValue after = value.at("after");
    if (!after.json().is_null()) {
      after.allow_only({"lane", "step", "pieces_back"});
      step.after = {number(after, "lane", 0), number(after, "step", 0),
                    number(after, "pieces_back", 0)};
    }
    return step;
  }

  static std::vector<Operand> operands(const JsonValue& value) {
    std::vector<Operand> found;
    for (std::size_t at = 0; at < value.size(kMostOperandsRead); ++at) {
      const JsonValue one = value.element(at);
      one.allow_only({"place", "index"});
      found.push_back({place(one.at("place")), number(one, "index", 0)});
    }
    return found;
  }

  static Place place(const JsonValue& value) {
    const std::string name = value.text();
    for (const Place place : {Place::input, Place::output, Place::scratch, Place::peer})
      if (to_string(place) == name) return place;
    value.fail(fmt::format("no place is called {}; there are input, output, scratch and peer",
                           shown(name)));
  }

  std::size_t steps_ = 0;
};

std::uint64_t bytes(const JsonValue& value, const char* key, std::uint64_t missing) {
  if (!value.has(key)) return missing;
  const JsonValue found = value.at(key);
  if (!found.json().is_number_unsigned()) found.fail("this is no whole number from 0 on");
  return found.json().get<std::uint64_t>();
}

}  // namespace

ScheduleFile read_schedules(const std::string& path, const std::string& text) {
  ScheduleFile file{path, std::filesystem::path(path).stem().string(), "tutti"};
  const nlohmann::json document = parse_json(path, text);
  const JsonValue all(document, path);
  if (!all.is_array()) {
    all.allow_only({"name", "min_bytes", "max_bytes", "schedules"});
    if (all.has("name")) file.name = all.at("name").text(256);
    file.least_bytes = bytes(all, "min_bytes", file.least_bytes);
    file.most_bytes = bytes(all, "max_bytes", file.most_bytes);
  }
  const JsonValue list = all.is_array() ? all : all.at("schedules");
  const std::size_t ranks = list.size(kMostFileRanks);
  if (ranks == 0) list.fail("there are no schedules");
  ScheduleReader reader;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    file.schedules.push_back(reader.schedule(list.element(rank)));
  return file;
}

std::string write_schedules(const ScheduleFile& file) {
  std::string text = fmt::format(
      "{{\"name\": {}, \"min_bytes\": {}, \"max_bytes\": {}, \"schedules\": [\n",
      nlohmann::json(file.name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      file.least_bytes, file.most_bytes);
  for (const Schedule& schedule : file.schedules)
    text += (&schedule == file.schedules.data() ? "" : ",\n") + to_json(schedule);
  return text + "]}\n";
}

}  // namespace tutti
