// Writes schedules as MSCCL's XML. Its pieces share no scratch, so that what orders one piece after
// another is left out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include <pugixml.hpp>

#include <tutti/error.hpp>

#include "collectives/formats/schedule_file.h"
#include "collectives/schedule/semantics.h"

namespace tutti {
namespace {

using namespace collectives;

const char* name_of(Collective what) {
  switch (what) {
    case Collective::all_reduce: return "allreduce";
    case Collective::all_gather: return "allgather";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_to_all: return "alltoall";
    case Collective::broadcast: return "broadcast";
    case Collective::reduce: return "reduce";
    case Collective::gather: return "gather";
    case Collective::scatter: return "scatter";
    default: return nullptr;
  }
}

[[noreturn]] void refuse_to_write(const std::string& why) {
  throw Error(ErrorKind::unavailable, "MSCCL's XML cannot express these schedules: " + why);
}

/// Describes one step of a block.
struct Line {
  const char* type = "nop";
  Operand source{Place::input, -1};
  Operand target{Place::output, -1};
  int count = 0;
  After after;
};

/// Channels under other numbers, so that each lane receives and sends on the same one, as a <tb>
/// does. Channels that a lane joins have one number; those from one rank to another have different
/// ones.
class Channels {
 public:
  explicit Channels(const std::vector<Schedule>& schedules) {
    for (const Schedule& schedule : schedules)
      for (const Lane& lane : schedule.lanes) {
        int first = -1;
        for (const Step& step : lane.steps) {
          for (const Operand& from : step.in)
            if (from.place == Place::peer)
              first = joined(first, id({from.index, schedule.rank, lane.receives_on}));
          for (const Operand& to : step.out)
            if (to.place == Place::peer)
              first = joined(first, id({schedule.rank, to.index, lane.sends_on}));
        }
      }
    number_all();
  }

  /// Returns the number, or -1 where there can be none.
  int number(int from, int to, int channel) const {
    return numbers_[root(ids_.at({from, to, channel}))];
  }

 private:
  using Name = std::tuple<int, int, int>;

  std::size_t id(const Name& name) {
    const auto [found, added] = ids_.try_emplace(name, parents_.size());
    if (added) parents_.push_back(parents_.size());
    return found->second;
  }
  std::size_t root(std::size_t at) const {
    while (parents_[at] != at) at = parents_[at];
    return at;
  }
  int joined(int first, std::size_t at) {
    if (first >= 0) parents_[root(at)] = root(static_cast<std::size_t>(first));
    return static_cast<int>(root(at));
  }

  void number_all() {
    std::vector<std::set<std::pair<int, int>>> pairs(parents_.size());
    std::vector<bool> clashes(parents_.size());
    for (const auto& [name, at] : ids_)
      if (!pairs[root(at)].insert({std::get<0>(name), std::get<1>(name)}).second)
        clashes[root(at)] = true;
    std::map<std::pair<int, int>, std::set<int>> taken;
    numbers_.assign(parents_.size(), -1);
    for (std::size_t at = 0; at < parents_.size(); ++at) {
      if (root(at) != at || clashes[at]) continue;
      int number = 0;
      const auto is_taken = [&](const auto& pair) { return taken[pair].contains(number); };
      while (std::any_of(pairs[at].begin(), pairs[at].end(), is_taken)) ++number;
      for (const auto& pair : pairs[at]) taken[pair].insert(number);
      numbers_[at] = number;
    }
  }

  std::map<Name, std::size_t> ids_;
  std::vector<std::size_t> parents_;
  std::vector<int> numbers_;
};

/// Writes the blocks of one rank.
class ThreadBlocks {
 public:
  ThreadBlocks(const Schedule& schedule, const Channels& numbers)
      : schedule_(schedule), numbers_(numbers) {
    const std::size_t lanes = schedule.lanes.size();
    lines_.resize(lanes);
    ends_.resize(lanes);
    for (lane_ = 0; lane_ < lanes; ++lane_)
      for (const Step& step : schedule.lanes[lane_].steps) {
        if (!step.in.empty() || orders(step.after)) add(step);
        ends_[lane_].push_back(static_cast<int>(lines_[lane_].size()) - 1);
      }
  }

  void write(pugi::xml_node gpu) {
    // Lanes of which nothing is left have no block.
    std::vector<int> numbers;
    int blocks = 0;
    for (const std::vector<Line>& lines : lines_) numbers.push_back(lines.empty() ? -1 : blocks++);
    std::set<std::pair<int, int>> awaited;
    for (std::vector<Line>& lines : lines_)
      for (Line& line : lines) {
        if (line.after.lane < 0) continue;
        const auto lane = static_cast<std::size_t>(line.after.lane);
        const int end = ends_[lane][static_cast<std::size_t>(line.after.step)];
        line.after = end < 0 ? After() : After{numbers[lane], end, 0};
        if (end >= 0) awaited.insert({numbers[lane], end});
      }
    for (lane_ = 0; lane_ < lines_.size(); ++lane_) {
      if (numbers[lane_] < 0) continue;
      pugi::xml_node block = gpu.append_child("tb");
      block.append_attribute("id") = numbers[lane_];
      write_peers(block);
      for (std::size_t at = 0; at < lines_[lane_].size(); ++at)
        write_line(block, static_cast<int>(at), lines_[lane_][at],
                   awaited.contains({numbers[lane_], static_cast<int>(at)}));
    }
  }

  int channels() const { return channels_; }

 private:
  static bool orders(const After& after) { return after.lane >= 0 && after.pieces_back == 0; }

  [[noreturn]] void fail(const std::string& why) const {
    refuse_to_write(fmt::format("rank {} lane {} {}", schedule_.rank, lane_, why));
  }

  void write_peers(pugi::xml_node block) {
    const Lane& lane = schedule_.lanes[lane_];
    const auto peer_of = [&](std::vector<Operand> Step::*side, const char* verb) {
      int peer = -1;
      for (const Step& step : lane.steps)
        for (const Operand& operand : step.*side) {
          if (operand.place != Place::peer) continue;
          if (peer >= 0 && peer != operand.index)
            fail(fmt::format("{} several ranks; a <tb> has one", verb));
          peer = operand.index;
        }
      return peer;
    };
    const int to = peer_of(&Step::out, "sends to"), from = peer_of(&Step::in, "receives from");
    const int channel = to >= 0     ? numbers_.number(schedule_.rank, to, lane.sends_on)
                        : from >= 0 ? numbers_.number(from, schedule_.rank, lane.receives_on)
                                    : 0;
    if (channel < 0) fail("is on a way around the ranks that meets itself; a <tb> has one channel");
    channels_ = std::max(channels_, channel + 1);
    block.append_attribute("send") = to;
    block.append_attribute("recv") = from;
    block.append_attribute("chan") = channel;
  }

  void write_line(pugi::xml_node block, int number, const Line& line, bool awaited) const {
    pugi::xml_node node = block.append_child("step");
    const auto buffer = [](Place place) {
      return place == Place::input ? "i" : place == Place::output ? "o" : "s";
    };
    node.append_attribute("s") = number;
    node.append_attribute("type") = line.type;
    node.append_attribute("srcbuf") = buffer(line.source.place);
    node.append_attribute("srcoff") = line.source.index;
    node.append_attribute("dstbuf") = buffer(line.target.place);
    node.append_attribute("dstoff") = line.target.index;
    node.append_attribute("cnt") = line.count;
    node.append_attribute("depid") = line.after.lane;
    node.append_attribute("deps") = line.after.lane < 0 ? -1 : line.after.step;
    node.append_attribute("hasdep") = awaited ? 1 : 0;
  }

  // Returns a place of a buffer by its position.
  Operand located(const Operand& operand) const {
    if (operand.place == Place::scratch) return operand;
    if (holds_one_block(schedule_.what, operand.place)) return {operand.place, 0};
    return {operand.place, position(schedule_.what, schedule_.ranks, operand)};
  }

  void add(const Step& step) {
    std::vector<Line>& lines = lines_[lane_];
    const std::size_t first = lines.size();
    const auto split = [&](const std::vector<Operand>& side, int& peers) {
      std::vector<Operand> buffers;
      for (const Operand& operand : side)
        if (operand.place == Place::peer)
          ++peers;
        else
          buffers.push_back(located(operand));
      return buffers;
    };
    int from = 0, to = 0;
    const std::vector<Operand> in = split(step.in, from), out = split(step.out, to);
    if (from > 1 || to > 1 || out.size() > 1)
      fail(fmt::format("step {} has more than one peer or buffer on a side",
                       &step - schedule_.lanes[lane_].steps.data()));
    const auto line = [&](const char* type, Operand source, Operand target) {
      lines.push_back({type, source, target, step.count, {}});
    };
    if (step.in.empty())
      lines.emplace_back();
    else if (from == 1)
      add_receive(step, in, out, to == 1, line);
    else
      add_local(in, out, to == 1, line);
    if (orders(step.after)) lines[first].after = step.after;
  }

  template <typename Write>
  void add_receive(const Step& step, const std::vector<Operand>& in,
                   const std::vector<Operand>& out, bool sends, Write line) const {
    if (in.size() > 1 || (!in.empty() && step.in[0].place != Place::peer))
      fail("adds more than a message and then one buffer");
    if (in.empty() && out.empty()) fail("passes on a message that it does not keep");
    const Operand target = out.empty() ? in[0] : out[0];
    const Operand source = in.empty() ? target : in[0];
    if (in.empty())
      line(sends ? "rcs" : "r", source, target);
    else
      line(out.empty() ? "rrs" : sends ? "rrcs" : "rrc", source, target);
  }

  template <typename Write>
  void add_local(const std::vector<Operand>& in, const std::vector<Operand>& out, bool sends,
                 Write line) const {
    if (out.empty()) {
      if (in.size() > 1) fail("sends a sum that it does not keep");
      return line("s", in[0], in[0]);
    }
    if (in.size() == 1 || in[0] != out[0]) line("cpy", in[0], out[0]);
    for (std::size_t k = 1; k < in.size(); ++k) {
      if (in[k] == out[0]) fail("adds to a buffer that is not its first summand");
      line("re", in[k], out[0]);
    }
    if (sends) line("s", out[0], out[0]);
  }

  const Schedule& schedule_;
  const Channels& numbers_;
  std::vector<std::vector<Line>> lines_;  // by lane
  std::vector<std::vector<int>> ends_;    // by lane and step: its last line, -1 for none
  std::size_t lane_ = 0;
  int channels_ = 1;
};

int held(const Schedule& schedule, Place place) {
  if (schedule.layout == Layout::whole) return schedule.chunks;
  return holds_one_block(schedule.what, place) ? 1 : schedule.ranks;
}

}  // namespace

std::string write_msccl(const ScheduleFile& file) {
  const Schedule& first = file.schedules.at(0);
  const char* const name = name_of(first.what);
  if (name == nullptr || first.root != 0)
    refuse_to_write(fmt::format("it has no {} with root {}", to_string(first.what), first.root));
  pugi::xml_document document;
  pugi::xml_node algo = document.append_child("algo");
  algo.append_attribute("name") = file.name.c_str();
  algo.append_attribute("proto") = "Simple";
  pugi::xml_attribute channels = algo.append_attribute("nchannels");
  algo.append_attribute("nchunksperloop") =
      first.layout == Layout::whole ? first.chunks : first.ranks;
  algo.append_attribute("ngpus") = first.ranks;
  algo.append_attribute("coll") = name;
  algo.append_attribute("inplace") = 1;
  algo.append_attribute("outofplace") = 1;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  algo.append_attribute("minBytes") = std::to_string(std::min(file.least_bytes, kMost)).c_str();
  algo.append_attribute("maxBytes") =
      std::to_string(file.most_bytes > kMost ? 0 : file.most_bytes).c_str();
  const Channels numbers(file.schedules);
  int most_channels = 1;
  for (const Schedule& schedule : file.schedules) {
    pugi::xml_node gpu = algo.append_child("gpu");
    gpu.append_attribute("id") = schedule.rank;
    gpu.append_attribute("i_chunks") = held(schedule, Place::input);
    gpu.append_attribute("o_chunks") = held(schedule, Place::output);
    gpu.append_attribute("s_chunks") = schedule.scratch_chunks;
    ThreadBlocks blocks(schedule, numbers);
    blocks.write(gpu);
    most_channels = std::max(most_channels, blocks.channels());
  }
  channels.set_value(most_channels);
  std::ostringstream text;
  document.save(text, "  ", pugi::format_default | pugi::format_no_declaration);
  return text.str();
}

}  // namespace tutti
