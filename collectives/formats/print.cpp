#include "collectives/formats/print.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace tutti {

std::string_view to_string(Place place) {
  static_assert(static_cast<int>(Place::peer) == 3, "each place has a name");
  switch (place) {
    case Place::input: return "input";
    case Place::output: return "output";
    case Place::scratch: return "scratch";
    case Place::peer: return "peer";
  }
  return "unknown";
}

namespace {

std::string_view name_of(Layout layout) {
  static_assert(static_cast<int>(Layout::blocks) == 1, "each layout has a name");
  switch (layout) {
    case Layout::whole: return "whole";
    case Layout::blocks: return "blocks";
  }
  return "unknown";
}

template <typename List, typename ToText>
std::string joined(const List& list, std::string_view separator, ToText to_text) {
  std::string text;
  for (const auto& item : list) {
    if (&item != &*list.begin()) text += separator;
    text += to_text(item);
  }
  return text;
}

std::string operands_text(const std::vector<Operand>& operands, std::string_view separator) {
  return joined(operands, separator, [](const Operand& operand) { return to_text(operand); });
}

bool has_peer(const std::vector<Step>& steps, std::vector<Operand> Step::*side) {
  for (const Step& step : steps)
    for (const Operand& operand : step.*side)
      if (operand.place == Place::peer) return true;
  return false;
}

std::string json(const std::vector<Operand>& operands) {
  return joined(operands, ", ", [](const Operand& operand) {
    return fmt::format(R"({{"place": "{}", "index": {}}})", to_string(operand.place),
                       operand.index);
  });
}

std::string json(const Step& step) {
  const After& after = step.after;
  return fmt::format(
      R"({{"in": [{}], "out": [{}], "chunk": {}, "count": {}, "completes": {}, "after": {}}})",
      json(step.in), json(step.out), step.chunk, step.count, step.completes,
      after.lane < 0 ? "null"
                     : fmt::format(R"({{"lane": {}, "step": {}, "pieces_back": {}}})", after.lane,
                                   after.step, after.pieces_back));
}

std::string json(const Lane& lane) {
  const auto step_line = [](const Step& step) { return "\n      " + json(step); };
  return fmt::format(R"({{"receives_on": {}, "sends_on": {}, "steps": [{}]}})", lane.receives_on,
                     lane.sends_on, joined(lane.steps, ",", step_line));
}

}  // namespace

std::string to_text(const Operand& operand) {
  if (operand.place == Place::peer) return fmt::format("rank {}", operand.index);
  return fmt::format("{}[{}]", to_string(operand.place), operand.index);
}

std::string chunks_text(int chunk, int count) {
  if (chunk == kAnyChunk) return fmt::format("{} chunk{}", count, count == 1 ? "" : "s");
  if (count == 1) return fmt::format("chunk {}", chunk);
  return fmt::format("chunks {} to {}", chunk, std::int64_t{chunk} + count - 1);
}

std::string to_text(const Step& step) {
  std::string text =
      step.in.empty() && step.out.empty()
          ? "nothing"
          : fmt::format("{}: {} -> {}", chunks_text(step.chunk, step.count),
                        operands_text(step.in, " + "), operands_text(step.out, ", "));
  if (step.completes) text += "; completes";
  if (step.after.lane >= 0)
    text += fmt::format("; after lane {} step {}", step.after.lane, step.after.step);
  if (step.after.lane >= 0 && step.after.pieces_back != 0)
    text += fmt::format(" of {} piece{} back", step.after.pieces_back,
                        step.after.pieces_back == 1 ? "" : "s");
  return text;
}

std::string to_text(const Schedule& schedule) {
  std::string text = fmt::format(
      "{}, rank {} of {}{}: {} {}, {}, widest step {}\n", to_string(schedule.what), schedule.rank,
      schedule.ranks, schedule.root != 0 ? fmt::format(", root {}", schedule.root) : "",
      schedule.chunks,
      schedule.layout == Layout::blocks ? "blocks of the call" : "chunks of the whole vector",
      schedule.scratch_chunks == 0 ? "no scratch"
                                   : fmt::format("scratch of {} chunks", schedule.scratch_chunks),
      schedule.widest);
  for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
    const auto& [receives_on, sends_on, steps] = schedule.lanes[lane];
    fmt::format_to(std::back_inserter(text), "lane {}", lane);
    if (has_peer(steps, &Step::in))
      fmt::format_to(std::back_inserter(text), ", receives on channel {}", receives_on);
    if (has_peer(steps, &Step::out))
      fmt::format_to(std::back_inserter(text), ", sends on channel {}", sends_on);
    text += '\n';
    for (std::size_t step = 0; step < steps.size(); ++step)
      fmt::format_to(std::back_inserter(text), "{:>3}  {}\n", step, to_text(steps[step]));
  }
  return text;
}

std::string to_json(const Schedule& schedule) {
  const auto lane_line = [](const Lane& lane) { return "\n    " + json(lane); };
  return fmt::format(
      "{{\"collective\": \"{}\", \"layout\": \"{}\", \"rank\": {}, \"ranks\": {}, \"root\": {},\n"
      "  \"chunks\": {}, \"scratch_chunks\": {}, \"widest\": {},\n  \"lanes\": [{}]}}\n",
      to_string(schedule.what), name_of(schedule.layout), schedule.rank, schedule.ranks,
      schedule.root, schedule.chunks, schedule.scratch_chunks, schedule.widest,
      joined(schedule.lanes, ",", lane_line));
}

}  // namespace tutti
