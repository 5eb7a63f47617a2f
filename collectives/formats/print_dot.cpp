// Prints schedules as a picture in the language of Graphviz.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "collectives/formats/print.h"

namespace tutti {
namespace {

struct Node {
  int rank;
  int lane;
  int step;
};

std::string name_of(const Node& node) {
  return fmt::format("r{}_l{}_s{}", node.rank, node.lane, node.step);
}

/// The steps at both ends of a channel, in the order of its messages.
struct Ends {
  std::vector<Node> sends;
  std::vector<Node> receives;
};
using EndsByChannel = std::map<std::tuple<int, int, int>, Ends>;  // keys: from, to, number

class Picture {
 public:
  void add(const Schedule& schedule) {
    line("  subgraph cluster_{} {{\n    label=\"rank {}\";\n", schedule.rank, schedule.rank);
    for (int lane = 0; lane < static_cast<int>(schedule.lanes.size()); ++lane)
      for (int step = 0; step < static_cast<int>(schedule.lanes[lane].steps.size()); ++step)
        add_step(schedule, {schedule.rank, lane, step});
    line("  }}\n");
  }

  std::string finish(const Schedule& first) && {
    for (const auto& [channel, ends] : channels_)
      for (std::size_t i = 0; i < std::min(ends.sends.size(), ends.receives.size()); ++i)
        line("  {} -> {} [color=blue];\n", name_of(ends.sends[i]), name_of(ends.receives[i]));
    return fmt::format(
        "digraph schedule {{\n  label=\"{} of {} ranks\";\n  rankdir=LR;\n"
        "  node [shape=box, fontname=monospace];\n{}}}\n",
        to_string(first.what), first.ranks, text_);
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void add_step(const Schedule& schedule, const Node& node) {
    const Lane& lane = schedule.lanes[node.lane];
    const Step& step = lane.steps[node.step];
    line("    {} [label=\"lane {} step {}\\n{}\"];\n", name_of(node), node.lane, node.step,
         to_text(step));
    if (node.step > 0)
      line("    {} -> {};\n", name_of({node.rank, node.lane, node.step - 1}), name_of(node));
    if (step.after.lane >= 0)
      line("    {} -> {} [style=dashed];\n", name_of({node.rank, step.after.lane, step.after.step}),
           name_of(node));
    for (const Operand& from : step.in)
      if (from.place == Place::peer)
        channels_[{from.index, node.rank, lane.receives_on}].receives.push_back(node);
    for (const Operand& to : step.out)
      if (to.place == Place::peer)
        channels_[{node.rank, to.index, lane.sends_on}].sends.push_back(node);
  }

  std::string text_;
  EndsByChannel channels_;
};

}  // namespace

std::string to_dot(std::span<const Schedule> schedules) {
  Picture picture;
  for (const Schedule& schedule : schedules) picture.add(schedule);
  return std::move(picture).finish(schedules.empty() ? Schedule{} : schedules[0]);
}

}  // namespace tutti
