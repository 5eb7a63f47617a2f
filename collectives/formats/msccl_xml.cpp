// Reads MSCCL's XML, which has one <gpu> for each rank, with a <tb> for each of its lanes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include <tutti/error.hpp>

#include "collectives/formats/file_plan.h"
#include "collectives/formats/schedule_file.h"
#include "collectives/schedule/semantics.h"
#include "common/text.h"
#include "common/xml_file.h"

namespace tutti {
namespace {

using namespace collectives;

/// The names of collectives; RCCL writes one of them without the underscore.
constexpr std::array<std::pair<std::string_view, Collective>, 9> kNames{{
    {"allreduce", Collective::all_reduce},
    {"allgather", Collective::all_gather},
    {"reduce_scatter", Collective::reduce_scatter},
    {"reducescatter", Collective::reduce_scatter},
    {"alltoall", Collective::all_to_all},
    {"broadcast", Collective::broadcast},
    {"reduce", Collective::reduce},
    {"gather", Collective::gather},
    {"scatter", Collective::scatter},
}};

class MscclReader {
 public:
  MscclReader(const XmlFile& xml, ScheduleFile& file) : xml_(xml), file_(file), algo_(xml.root()) {}

  FilePlan read() && {
    read_heading();
    for (const pugi::xml_node gpu : elements(algo_, "gpu")) read_gpu(gpu);
    for (std::size_t rank = 0; rank < plan_.ranks.size(); ++rank)
      if (!seen_.contains(static_cast<int>(rank)))
        xml_.fail(algo_, fmt::format("there is no <gpu> with the id {}", rank));
    for (const auto& [rank, lane, node, after] : afters_) check(rank, lane, node, after);
    plan_.in_place = in_place_ && (writes_input_ || !out_of_place_);
    return std::move(plan_);
  }

 private:
  struct Waits {
    int rank;
    int lane;
    pugi::xml_node node;
    After after;
  };

  void read_heading() {
    const std::string_view name = xml_.text(algo_, "coll");
    const auto found = std::find_if(kNames.begin(), kNames.end(),
                                    [&](const auto& known) { return known.first == name; });
    if (found == kNames.end())
      xml_.fail(algo_, fmt::format("coll={} is no collective that is read; there are allreduce, "
                                   "allgather, reduce_scatter, alltoall, broadcast, reduce, gather "
                                   "and scatter",
                                   shown(name)));
    plan_.what = found->second;
    plan_.root = 0;  // the format knows no other
    plan_.ranks.resize(static_cast<std::size_t>(xml_.number(algo_, "ngpus", 1, kMostFileRanks)));
    plan_.chunks = static_cast<int>(xml_.number(algo_, "nchunksperloop", 1, kMostFileChunks));
    in_place_ = xml_.number(algo_, "inplace", 0, 1, 0) != 0;
    out_of_place_ = xml_.number(algo_, "outofplace", 0, 1, in_place_ ? 0 : 1) != 0;
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    file_.least_bytes = static_cast<std::uint64_t>(xml_.number(algo_, "minBytes", 0, kMost, 0));
    const std::int64_t most = xml_.number(algo_, "maxBytes", 0, kMost, 0);  // 0: no limit
    if (most > 0) file_.most_bytes = static_cast<std::uint64_t>(most);
    if (algo_.attribute("name")) file_.name = algo_.attribute("name").value();
  }

  std::vector<pugi::xml_node> elements(pugi::xml_node parent, std::string_view known) const {
    std::vector<pugi::xml_node> found;
    for (const pugi::xml_node node : parent.children()) {
      if (node.type() != pugi::node_element) continue;
      if (node.name() != known)
        xml_.fail(node,
                  fmt::format("<{}> has no place in <{}>", shown(node.name()), parent.name()));
      found.push_back(node);
    }
    return found;
  }

  void read_gpu(pugi::xml_node gpu) {
    const int ranks = static_cast<int>(plan_.ranks.size());
    rank_ = static_cast<int>(xml_.number(gpu, "id", 0, ranks - 1));
    if (!seen_.insert(rank_).second) xml_.fail(gpu, fmt::format("GPU {} is there twice", rank_));
    FileRank& rank = plan_.ranks[static_cast<std::size_t>(rank_)];
    check_buffer(gpu, "i_chunks", Place::input);
    check_buffer(gpu, "o_chunks", Place::output);
    rank.scratch_chunks = static_cast<int>(xml_.number(gpu, "s_chunks", 0, kMostFileChunks, 0));
    if ((scratch_ += rank.scratch_chunks) > kMostFileChunks)
      xml_.fail(gpu, fmt::format("there are more than {} scratch chunks", kMostFileChunks));
    for (const pugi::xml_node block : elements(gpu, "tb")) {
      const auto lanes = static_cast<std::int64_t>(rank.lanes.size());
      if (lanes == kMostFileLanes)
        xml_.fail(block, fmt::format("there are more than {} <tb>", kMostFileLanes));
      if (xml_.number(block, "id", 0, kMostFileLanes) != lanes)
        xml_.fail(block, fmt::format("expected id=\"{}\": the ids of <tb> count from 0", lanes));
      rank.lanes.emplace_back();
      read_block(block, rank.lanes.back());
    }
  }

  // Blocks that are cut in several chunks cannot be told from blocks of several ranks.
  void check_buffer(pugi::xml_node gpu, const char* attribute, Place place) const {
    const int held = positions_of(plan_, place);
    const std::int64_t named = xml_.number(gpu, attribute, 0, kMostFileChunks, 0);
    if (named > held && layout_of(plan_.what) == Layout::blocks)
      throw Error(ErrorKind::unavailable,
                  fmt::format("{}: {}={} cuts blocks into chunks; tutti's schedules move blocks "
                              "whole, of which this buffer has {}",
                              file_.path, attribute, named, held));
  }

  void read_block(pugi::xml_node block, FileLane& lane) {
    const int ranks = static_cast<int>(plan_.ranks.size());
    sends_to_ = static_cast<int>(xml_.number(block, "send", -1, ranks - 1));
    receives_from_ = static_cast<int>(xml_.number(block, "recv", -1, ranks - 1));
    lane.receives_on = lane.sends_on =
        static_cast<int>(xml_.number(block, "chan", 0, (1 << 12) - 1, 0));
    for (const pugi::xml_node node : elements(block, "step")) {
      if (++steps_ > kMostFileSteps)
        xml_.fail(node, fmt::format("there are more than {} steps", kMostFileSteps));
      const auto number = static_cast<std::int64_t>(lane.steps.size());
      if (xml_.number(node, "s", 0, kMostFileSteps) != number)
        xml_.fail(node, fmt::format("expected s=\"{}\": steps count from 0", number));
      lane.steps.push_back(read_step(node));
      const int depends = static_cast<int>(xml_.number(node, "depid", -1, kMostFileLanes, -1));
      if (depends < 0) continue;
      const After after{depends, static_cast<int>(xml_.number(node, "deps", 0, kMostFileSteps)), 0};
      const int self =
          static_cast<int>(plan_.ranks[static_cast<std::size_t>(rank_)].lanes.size()) - 1;
      afters_.push_back({rank_, self, node, after});
      if (depends != self) lane.steps.back().after.push_back(after);
    }
  }

  FileStep read_step(pugi::xml_node node) {
    FileStep step;
    const std::string_view type = xml_.text(node, "type");
    if (type == "nop") return step;
    step.count = static_cast<int>(xml_.number(node, "cnt", 1, kMostFileChunks));
    const auto source = [&] { return operand(node, "srcbuf", "srcoff", step.count); };
    const auto target = [&] {
      const Operand to = operand(node, "dstbuf", "dstoff", step.count);
      writes_input_ = writes_input_ || to.place == Place::input;
      return to;
    };
    const auto from = [&] { return peer_of(node, receives_from_, "recv"); };
    const auto to = [&] { return peer_of(node, sends_to_, "send"); };
    if (type == "s") {
      step.in = {source()}, step.out = {to()};
    } else if (type == "r") {
      step.in = {from()}, step.out = {target()};
    } else if (type == "rcs") {
      step.in = {from()}, step.out = {target(), to()};
    } else if (type == "rrs") {
      step.in = {from(), source()}, step.out = {to()};
    } else if (type == "rrc") {
      step.in = {from(), source()}, step.out = {target()};
    } else if (type == "rrcs") {
      step.in = {from(), source()}, step.out = {target(), to()};
    } else if (type == "cpy") {
      step.in = {source()}, step.out = {target()};
    } else if (type == "re") {
      step.in = {target(), source()}, step.out = {step.in[0]};
    } else {
      xml_.fail(node, fmt::format("type={} is no kind of step; there are s, r, rcs, rrs, rrc, "
                                  "rrcs, cpy, re and nop",
                                  shown(type)));
    }
    return step;
  }

  Operand peer_of(pugi::xml_node node, int peer, const char* attribute) const {
    if (peer < 0 || peer == rank_)
      xml_.fail(node,
                fmt::format("the step needs a peer, but its <tb> has {}=\"{}\"", attribute, peer));
    return {Place::peer, peer};
  }

  Operand operand(pugi::xml_node node, const char* buffer, const char* offset, int count) const {
    const std::string_view name = xml_.text(node, buffer);
    if (name != "i" && name != "o" && name != "s")
      xml_.fail(node, fmt::format("{}={} is none of i, o and s", buffer, shown(name)));
    const Place place = name == "i" ? Place::input : name == "o" ? Place::output : Place::scratch;
    const int held = place == Place::scratch
                         ? plan_.ranks[static_cast<std::size_t>(rank_)].scratch_chunks
                         : positions_of(plan_, place);
    const auto first = static_cast<int>(xml_.number(node, offset, 0, kMostFileChunks));
    if (count > held || first > held - count)
      xml_.fail(node, fmt::format("{} chunks from {}={} are beyond the {} of this buffer", count,
                                  offset, first, held));
    return {place, first};
  }

  // A step may wait for one that is described further on.
  void check(int rank, int lane, pugi::xml_node node, const After& after) const {
    const auto& lanes = plan_.ranks[static_cast<std::size_t>(rank)].lanes;
    const auto other = static_cast<std::size_t>(after.lane);
    if (other >= lanes.size() || static_cast<std::size_t>(after.step) >= lanes[other].steps.size())
      xml_.fail(node,
                fmt::format("depid={}, deps={} is no step of this GPU", after.lane, after.step));
    const auto number = xml_.number(node, "s", 0, kMostFileSteps);
    if (after.lane == lane && after.step >= number)
      xml_.fail(node, "the step waits for itself or for a later one of its <tb>");
  }

  const XmlFile& xml_;
  ScheduleFile& file_;
  const pugi::xml_node algo_;
  FilePlan plan_;
  std::set<int> seen_;
  std::vector<Waits> afters_;
  bool in_place_ = false, out_of_place_ = true, writes_input_ = false;
  std::int64_t scratch_ = 0;
  int steps_ = 0;
  // These say where the reader is.
  int rank_ = 0, sends_to_ = -1, receives_from_ = -1;
};

}  // namespace

ScheduleFile read_msccl(const std::string& path, std::string text) {
  ScheduleFile file{path, std::filesystem::path(path).stem().string(), "msccl"};
  const XmlFile xml(path, std::move(text), "algo");
  file.schedules = schedules_of(MscclReader(xml, file).read());
  return file;
}

}  // namespace tutti
