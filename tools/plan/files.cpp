// Implements tutti-plan verify and convert, which read files of schedules.
#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "collectives/algorithms/algorithms.h"
#include "collectives/formats/schedule_file.h"
#include "common/text.h"
#include "tools/plan/commands.h"

namespace tutti::tools {
namespace {

struct Counts {
  std::size_t lanes = 0, steps = 0;
  int scratch_chunks = 0;
};

Counts counts_of(const ScheduleFile& file) {
  Counts counts;
  for (const Schedule& schedule : file.schedules) {
    counts.lanes += schedule.lanes.size();
    for (const Lane& lane : schedule.lanes) counts.steps += lane.steps.size();
    counts.scratch_chunks = std::max(counts.scratch_chunks, schedule.scratch_chunks);
  }
  return counts;
}

std::string window_text(const ScheduleFile& file) {
  if (file.most_bytes == std::numeric_limits<std::uint64_t>::max())
    return file.least_bytes == 0 ? std::string("calls of any size")
                                 : fmt::format("calls of {} bytes and more", file.least_bytes);
  return fmt::format("calls of {} to {} bytes", file.least_bytes, file.most_bytes);
}

void print_file(const ScheduleFile& file) {
  const Schedule& first = file.schedules[0];
  const Counts counts = counts_of(file);
  fmt::print("{}: {} ({}), {} of {} ranks, root {}, for {}\n", escape_controls(file.path),
             shown(file.name), file.format, to_string(first.what), file.schedules.size(),
             first.root, window_text(file));
  fmt::print(
      "{} chunks, at most {} scratch chunks, widest step {}, {} lanes and {} steps of all "
      "ranks\n",
      first.chunks, counts.scratch_chunks, first.widest, counts.lanes, counts.steps);
  std::fflush(stdout);
}

int verify_as_json(const ScheduleFile& file, int window) {
  const Counts counts = counts_of(file);
  const Schedule& first = file.schedules[0];
  nlohmann::ordered_json report{{"path", file.path},
                                {"name", file.name},
                                {"format", file.format},
                                {"collective", to_string(first.what)},
                                {"ranks", file.schedules.size()},
                                {"root", first.root},
                                {"chunks", first.chunks},
                                {"scratch_chunks", counts.scratch_chunks},
                                {"widest", first.widest},
                                {"lanes", counts.lanes},
                                {"steps", counts.steps},
                                {"min_bytes", file.least_bytes},
                                {"max_bytes", file.most_bytes},
                                {"proved", true},
                                {"too_large", false},
                                {"why", ""}};
  int status = 0;
  for (const bool in_place : {false, true}) {
    const Verdict verdict = verify(file.schedules, {.window = window, .in_place = in_place});
    if (verdict.ok) continue;
    report["proved"] = false;
    report["too_large"] = verdict.too_large;
    report["why"] = (in_place ? "in place: " : "") + verdict.why;
    status = verdict.too_large ? kTooLargeStatus : kRejectedStatus;
    break;
  }
  fmt::print("{}\n", report.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return status;
}

struct Arguments {
  std::string path, to = "json", name;
  int window = 2;
  bool json = false;
};

void add_path(CLI::App& command, Arguments& arguments) {
  command
      .add_option("file", arguments.path,
                  "MSCCL's XML, an execution plan of MSCCL++, or tutti's JSON")
      ->required();
}

}  // namespace

void add_verify(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand("verify", "Proves a file of schedules");
  const auto arguments = std::make_shared<Arguments>();
  add_path(*command, *arguments);
  command->add_option("--window", arguments->window, "Messages that a channel holds")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_flag("--json", arguments->json, "Print one JSON object in place of text");
  command->callback([arguments, &run] {
    run = [arguments] {
      const ScheduleFile file = read_schedule_file(arguments->path);
      if (arguments->json) return verify_as_json(file, arguments->window);
      print_file(file);
      return prove(file.schedules, arguments->window);
    };
  });
}

void add_convert(CLI::App& app, Run& run) {
  CLI::App* const command =
      app.add_subcommand("convert", "Writes a file of schedules in another format");
  const auto arguments = std::make_shared<Arguments>();
  add_path(*command, *arguments);
  command
      ->add_option("--to", arguments->to, "json (tutti's), msccl (XML), text, or dot for Graphviz")
      ->capture_default_str()
      ->check(CLI::IsMember({"json", "msccl", "text", "dot"}));
  command
      ->add_option("--name", arguments->name, "By which calls name it; by default as in the file")
      ->check([](const std::string& name) {
        return is_built_in_algorithm(name)
                   ? "tutti uses " + name + " itself, so that no call could name it"
                   : std::string();
      });
  command->callback([arguments, &run] {
    run = [arguments] {
      ScheduleFile file = read_schedule_file(arguments->path);
      if (!arguments->name.empty()) file.name = arguments->name;
      std::string text;
      if (arguments->to == "json") text = write_schedules(file);
      if (arguments->to == "msccl") {
        // The writer takes the shape of schedules for granted.
        if (const int status = prove(file.schedules, 2); status != 0) return status;
        text = write_msccl(file);
      }
      if (arguments->to == "dot") text = to_dot(file.schedules);
      if (arguments->to == "text")
        for (const Schedule& schedule : file.schedules)
          text += (text.empty() ? "" : "\n") + to_text(schedule);
      fmt::print("{}", text);
      return 0;
    };
  });
}

}  // namespace tutti::tools
