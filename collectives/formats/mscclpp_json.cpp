// Execution plans of MSCCL++, in which a rank reads and writes the memory of others and signals
// them.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <tutti/error.hpp>

#include "collectives/formats/mscclpp.h"
#include "collectives/formats/schedule_file.h"
#include "collectives/schedule/semantics.h"
#include "common/json_file.h"
#include "common/text.h"

namespace tutti {
namespace {

using namespace collectives;

using namespace mscclpp;

constexpr std::int64_t kMostParts = 1 << 10;  // operands of an op, channels of a rank

constexpr Kind kKinds[] = {
    {"nop", Does::nothing},
    {"flush", Does::nothing},
    {"barrier", Does::meets},
    {"signal", Does::nothing, true},
    {"rlxsignal", Does::nothing, true},
    {"wait", Does::waits},
    {"rlxwait", Does::waits},
    {"put", Does::moves},
    {"pws", Does::moves, true},
    {"pwsf", Does::moves, true},
    {"get", Does::moves},
    {"copy", Does::moves},
    {"ppkt", Does::moves, false, false, true},
    {"rppkt", Does::moves, false, true, true},
    {"cpkt", Does::moves, false, false, true},
    {"upkt", Does::moves, false, true},
    {"re", Does::reduces},
    {"res", Does::reduces},
    {"rre", Does::reduces},
    {"rres", Does::reduces},
    {"repkt", Does::reduces, false, true},
    {"respkt", Does::reduces, false, true, true},
    {"recpkt", Does::reduces, false, true, true},
    {"recspkt", Does::reduces, false, true, true},
};

std::uint64_t size(const JsonValue& all, const char* key, std::uint64_t missing) {
  if (!all.has(key)) return missing;
  const JsonValue found = all.at(key);
  if (!found.json().is_number_unsigned()) found.fail("this is no whole number from 0 on");
  return found.json().get<std::uint64_t>();
}

/// Reads the file into ops whose numbers are all in range.
class PlanReader {
 public:
  PlanReader(const JsonValue& all, FilePlan& plan) : all_(all), plan_(plan) {}

  std::vector<Gpu> read() && {
    const JsonValue gpus = all_.at("gpus");
    const std::size_t ranks = gpus.size(kMostFileRanks);
    if (ranks == 0) gpus.fail("there are no GPUs");
    plan_.what = collective(all_.at("collective"));
    plan_.in_place = all_.has("inplace") && all_.at("inplace").boolean();
    plan_.ranks.resize(ranks);
    gpus_.resize(ranks);
    for (rank_ = 0; rank_ < static_cast<int>(ranks); ++rank_)
      read_memory(gpus.element(static_cast<std::size_t>(rank_)));
    for (rank_ = 0; rank_ < static_cast<int>(ranks); ++rank_)
      read_connections(gpus.element(static_cast<std::size_t>(rank_)));
    join_connections(gpus);
    for (rank_ = 0; rank_ < static_cast<int>(ranks); ++rank_)
      read_blocks(gpus.element(static_cast<std::size_t>(rank_)));
    return std::move(gpus_);
  }

 private:
  static Collective collective(const JsonValue& value) {
    const std::string name = value.text();
    for (const auto& [known, what] : {std::pair{"allreduce", Collective::all_reduce},
                                      {"allgather", Collective::all_gather},
                                      {"reducescatter", Collective::reduce_scatter},
                                      {"alltoall", Collective::all_to_all},
                                      {"broadcast", Collective::broadcast}})
      if (name == known) return what;
    value.fail(fmt::format("no collective that is read is called {}", shown(name)));
  }

  static int number(const JsonValue& value, const char* key, std::int64_t least, std::int64_t most,
                    std::optional<std::int64_t> missing = {}) {
    return static_cast<int>(value.number(key, least, most, missing));
  }

  void read_memory(const JsonValue& gpu) {
    if (number(gpu, "id", 0, kMostFileRanks) != rank_)
      gpu.at("id").fail(fmt::format("expected {}: GPUs are in the order of their ids", rank_));
    const int input = number(gpu, "input_chunks", 0, kMostFileChunks);
    const int output = number(gpu, "output_chunks", 0, kMostFileChunks);
    const int scratch = number(gpu, "scratch_chunks", 0, kMostFileChunks, 0);
    if ((scratch_ += scratch) > kMostFileChunks)
      gpu.at("scratch_chunks").fail(fmt::format("there are more than {} in all", kMostFileChunks));
    plan_.ranks[static_cast<std::size_t>(rank_)].scratch_chunks = scratch;
    if (layout_of(plan_.what) == Layout::whole) {
      const int chunks = std::max({1, input, output});
      if (rank_ > 0 && chunks != plan_.chunks)
        gpu.fail(
            fmt::format("the vector has {} chunks here and {} on GPU 0", chunks, plan_.chunks));
      plan_.chunks = chunks;
    } else if (input > positions_of(plan_, Place::input) ||
               output > positions_of(plan_, Place::output)) {
      throw Error(ErrorKind::unavailable,
                  fmt::format("GPU {} cuts blocks into chunks ({} input_chunks, {} output_chunks); "
                              "tutti's schedules move blocks whole",
                              rank_, input, output));
    }
  }

  void read_connections(const JsonValue& gpu) {
    remotes_.emplace_back();
    types_.emplace_back();
    const JsonValue channels = gpu.at("channels");
    for (std::size_t at = 0; at < channels.size(kMostParts); ++at) {
      const JsonValue one = channels.element(at);
      const std::string type = one.at("channel_type").text();
      if (type != "memory" && type != "port")
        throw Error(ErrorKind::unavailable,
                    fmt::format("GPU {} has channels of the type {}, which need a switch that "
                                "reduces; tutti's schedules have none",
                                rank_, shown(type)));
      const JsonValue peers = one.at("connected_to");
      for (std::size_t k = 0; k < peers.size(kMostParts); ++k) {
        types_.back()[type].push_back(
            static_cast<int>(gpus_[static_cast<std::size_t>(rank_)].connections.size()));
        gpus_[static_cast<std::size_t>(rank_)].connections.push_back({peer(peers.element(k)), -1});
      }
    }
    if (!gpu.has("remote_buffers")) return;
    const JsonValue buffers = gpu.at("remote_buffers");
    for (std::size_t at = 0; at < buffers.size(kMostParts); ++at) {
      const JsonValue one = buffers.element(at);
      remotes_.back().push_back({peer(one.at("rank")), place(one.at("type")), 0});
    }
  }

  int peer(const JsonValue& value) const {
    const auto rank =
        static_cast<int>(value.number(0, static_cast<std::int64_t>(gpus_.size()) - 1));
    if (rank == rank_) value.fail("a GPU is no peer of its own");
    return rank;
  }

  static Place place(const JsonValue& value) {
    const std::string name = value.text();
    if (name == "i") return Place::input;
    if (name == "o") return Place::output;
    if (name != "s") value.fail(fmt::format("{} is none of i, o and s", shown(name)));
    return Place::scratch;
  }

  // The n-th connection of a type from one rank to another has the n-th in the other direction as
  // its other end.
  void join_connections(const JsonValue& gpus) {
    std::map<std::tuple<int, int, std::string>, std::vector<int>> all;
    for (std::size_t rank = 0; rank < gpus_.size(); ++rank)
      for (const auto& [type, list] : types_[rank])
        for (const int at : list)
          all[{static_cast<int>(rank), gpus_[rank].connections[static_cast<std::size_t>(at)].peer,
               type}]
              .push_back(at);
    for (const auto& [ends, list] : all) {
      const auto& [from, to, type] = ends;
      const auto back = all.find({to, from, type});
      if (back == all.end() || back->second.size() != list.size())
        gpus.element(static_cast<std::size_t>(from))
            .fail(fmt::format("{} channels to GPU {}, which has {} back", list.size(), to,
                              back == all.end() ? 0 : back->second.size()));
      for (std::size_t k = 0; k < list.size(); ++k)
        gpus_[static_cast<std::size_t>(from)].connections[static_cast<std::size_t>(list[k])].other =
            back->second[k];
    }
  }

  void read_blocks(const JsonValue& gpu) {
    const JsonValue blocks = gpu.at("threadblocks");
    const std::size_t count = blocks.size(kMostBlocks);
    if ((blocks_ += static_cast<std::int64_t>(count)) > kMostBlocks)
      blocks.fail(fmt::format("there are more than {} in all", kMostBlocks));
    for (std::size_t at = 0; at < count; ++at) {
      const JsonValue block = blocks.element(at);
      read_references(block);
      std::vector<PlanOp>& ops = gpus_[static_cast<std::size_t>(rank_)].blocks.emplace_back();
      const JsonValue list = block.at("ops");
      const std::size_t length = list.size(kMostOps);
      if ((ops_ += static_cast<std::int64_t>(length)) > kMostOps)
        list.fail(fmt::format("there are more than {} in all", kMostOps));
      for (std::size_t k = 0; k < length; ++k) ops.push_back(op(list.element(k)));
    }
  }

  // Ops of a block number channels and remote buffers by their place in these lists.
  void read_references(const JsonValue& block) {
    channel_ids_.clear();
    buffer_ids_.clear();
    const auto read = [&](const char* key, const char* type, const char* ids, auto& into,
                          std::size_t most) {
      if (!block.has(key)) return;
      const JsonValue list = block.at(key);
      for (std::size_t at = 0; at < list.size(kMostParts); ++at) {
        const JsonValue one = list.element(at);
        const JsonValue numbers = one.at(ids);
        for (std::size_t k = 0; k < numbers.size(kMostParts); ++k)
          into[one.at(type).text()].push_back(
              static_cast<int>(numbers.element(k).number(0, static_cast<std::int64_t>(most) - 1)));
      }
    };
    const auto rank = static_cast<std::size_t>(rank_);
    read("channels", "channel_type", "channel_ids", channel_ids_, kMostParts);
    read("remote_buffer_refs", "access_channel_type", "remote_buffer_ids", buffer_ids_,
         remotes_[rank].size());
  }

  PlanOp op(const JsonValue& value) {
    const std::string name = value.at("name").text();
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const Kind& known) { return known.name == name; });
    if (kind == std::end(kKinds))
      throw Error(
          ErrorKind::unavailable,
          fmt::format("GPU {} has an op {}, for which tutti has no steps", rank_, shown(name)));
    PlanOp op;
    op.kind = &*kind;
    const std::string type = value.has("channel_type") ? value.at("channel_type").text() : "memory";
    std::optional<int> count;
    if (kind->does == Does::moves || kind->does == Does::reduces) {
      read_buffers(value.at("src_buff"), type, op.from, count);
      read_buffers(value.at("dst_buff"), type, op.to, count);
      if (op.from.empty() || op.to.empty()) value.fail("there is nothing to read or to write");
      if (kind->does == Does::moves && op.from.size() != op.to.size())
        value.fail("there are not as many sources as destinations");
      op.count = *count;
    }
    if (kind->signals || kind->does == Does::waits) read_channels(value, type, op);
    if (kind->does == Does::meets) {
      op.barrier = number(value, "barrier_id", 0, 1 << 20, 0);
      op.meeting = number(value, "num_threadblocks", 1, kMostBlocks);
    }
    return op;
  }

  void read_channels(const JsonValue& value, const std::string& type, PlanOp& op) {
    const JsonValue ids = value.at("channel_ids");
    const auto& own = channel_ids_[type];
    const auto& all = types_[static_cast<std::size_t>(rank_)][type];
    for (std::size_t k = 0; k < ids.size(kMostParts); ++k) {
      const JsonValue id = ids.element(k);
      const auto at =
          static_cast<std::size_t>(id.number(0, static_cast<std::int64_t>(own.size()) - 1));
      if (static_cast<std::size_t>(own[at]) >= all.size())
        id.fail(fmt::format("the GPU has no {} channel {}", type, own[at]));
      op.channels.push_back(all[static_cast<std::size_t>(own[at])]);
    }
  }

  void read_buffers(const JsonValue& list, const std::string& type, std::vector<Memory>& into,
                    std::optional<int>& count) {
    for (std::size_t k = 0; k < list.size(kMostParts); ++k) {
      const JsonValue one = list.element(k);
      Memory memory{rank_, Place::input, 0};
      if (one.has("type")) {
        memory.place = place(one.at("type"));
      } else {
        const auto& ids = buffer_ids_[type];
        const auto id = static_cast<std::size_t>(
            one.number("buffer_id", 0, static_cast<std::int64_t>(ids.size()) - 1));
        memory = remotes_[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(ids[id])];
      }
      const int held = memory.place == Place::scratch
                           ? plan_.ranks[static_cast<std::size_t>(memory.rank)].scratch_chunks
                           : positions_of(plan_, memory.place);
      const int size = number(one, "size", 1, kMostFileChunks);
      memory.index = number(one, "index", 0, kMostFileChunks);
      if (size > held || memory.index > held - size)
        one.fail(fmt::format("{} chunks from {} are beyond the {} of this buffer", size,
                             memory.index, held));
      if (count.value_or(size) != size) one.fail("the operands of an op differ in their size");
      count = size;
      into.push_back(memory);
    }
  }

  const JsonValue& all_;
  FilePlan& plan_;
  std::vector<Gpu> gpus_;
  std::vector<std::vector<Memory>> remotes_;                    // by rank
  std::vector<std::map<std::string, std::vector<int>>> types_;  // by rank: connections by type
  std::map<std::string, std::vector<int>> channel_ids_, buffer_ids_;  // of the block being read
  std::int64_t blocks_ = 0, ops_ = 0, scratch_ = 0;
  int rank_ = 0;
};

}  // namespace

ScheduleFile read_mscclpp(const std::string& path, const std::string& text) {
  ScheduleFile file{path, std::filesystem::path(path).stem().string(), "mscclpp"};
  const nlohmann::json document = parse_json(path, text);
  const JsonValue all(document, path);
  FilePlan plan;
  const std::vector<Gpu> gpus = PlanReader(all, plan).read();
  std::int64_t blocks = 0, ops = 0;
  for (const Gpu& gpu : gpus)
    for (const std::vector<PlanOp>& block : gpu.blocks) {
      ++blocks;
      ops += static_cast<std::int64_t>(block.size());
    }
  if (blocks * ops > kMostClocks)
    all.fail(fmt::format("{} ops in {} blocks are more than is read", ops, blocks));
  if (all.has("name")) file.name = all.at("name").text(256);
  file.least_bytes = size(all, "min_message_size", file.least_bytes);
  file.most_bytes = size(all, "max_message_size", file.most_bytes);
  write_lanes(gpus, plan);
  file.schedules = schedules_of(plan);
  return file;
}

}  // namespace tutti
