// Measures UCC on the CPU's memory by the method of method.h. RANK and WORLD_SIZE have the meaning
// that tutti-run gives them.
#include <sched.h>
#include <ucc/api/ucc.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "method.h"
#include "shared_folder.h"

namespace tutti::compare {
namespace {

void check(ucc_status_t status, const char* what) {
  if (status < 0) throw std::runtime_error(std::string(what) + ": " + ucc_status_string(status));
}

/// The all-gather by which ranks exchange addresses: each writes a file in a folder they share.
class Exchange {
 public:
  Exchange(std::filesystem::path folder, int rank, int ranks)
      : folder_(std::move(folder)), rank_(rank), ranks_(ranks) {}

  ucc_oob_coll_t for_ucc() {
    return {.allgather = &Exchange::start,
            .req_test = &Exchange::test,
            .req_free = &Exchange::end,
            .coll_info = this,
            .n_oob_eps = static_cast<std::uint32_t>(ranks_),
            .oob_ep = static_cast<std::uint32_t>(rank_)};
  }

 private:
  struct Request {
    Exchange* exchange;
    std::size_t number, bytes;
    char* output;
  };

  static ucc_status_t start(void* input, void* output, std::size_t bytes, void* self,
                            void** request) {
    auto* exchange = static_cast<Exchange*>(self);
    const std::size_t number = exchange->started_++;
    tell(exchange->path(number, exchange->rank_), {static_cast<const char*>(input), bytes});
    *request = new Request{exchange, number, bytes, static_cast<char*>(output)};
    return UCC_OK;
  }

  static ucc_status_t test(void* request) {
    const auto& [exchange, number, bytes, output] = *static_cast<Request*>(request);
    for (int peer = 0; peer < exchange->ranks_; ++peer)
      if (!heard(exchange->path(number, peer),
                 {output + static_cast<std::size_t>(peer) * bytes, bytes}))
        return UCC_INPROGRESS;
    return UCC_OK;
  }

  static ucc_status_t end(void* request) {
    delete static_cast<Request*>(request);
    return UCC_OK;
  }

  [[nodiscard]] std::filesystem::path path(std::size_t number, int rank) const {
    return folder_ / ("ucc-" + std::to_string(number) + "-" + std::to_string(rank));
  }

  std::filesystem::path folder_;
  int rank_, ranks_;
  std::size_t started_ = 0;
};

class Ucc final : public Library {
 public:
  explicit Ucc(const std::filesystem::path& folder)
      : rank_(number_in_environment("RANK", "tutti-run")),
        ranks_(number_in_environment("WORLD_SIZE", "tutti-run")),
        crowded_(static_cast<unsigned>(ranks_) > std::thread::hardware_concurrency()),
        exchange_(folder, rank_, ranks_) {
    make_context();
    make_team();
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  void barrier() override { run(collective(UCC_COLL_TYPE_BARRIER)); }

  double max(double value) override {
    double greatest = 0;
    ucc_coll_args_t args = collective(UCC_COLL_TYPE_ALLREDUCE);
    args.src.info = buffer(&value, 1, UCC_DT_FLOAT64);
    args.dst.info = buffer(&greatest, 1, UCC_DT_FLOAT64);
    args.op = UCC_OP_MAX;
    run(args);
    return greatest;
  }

  std::function<void()> prepare(const Call& call) override {
    const auto n = static_cast<std::size_t>(ranks_);
    const std::size_t count = call.count;
    switch (call.operation) {
      case Operation::all_reduce:
        return repeated(UCC_COLL_TYPE_ALLREDUCE, floats(call.input, count),
                        floats(call.output, count));
      case Operation::all_reduce_in_place:
        return repeated(UCC_COLL_TYPE_ALLREDUCE, {}, floats(call.output, count),
                        UCC_COLL_ARGS_FLAG_IN_PLACE);
      case Operation::reduce_scatter:
        return repeated(UCC_COLL_TYPE_REDUCE_SCATTER, floats(call.input, n * count),
                        floats(call.output, count));
      case Operation::all_gather:
        return repeated(UCC_COLL_TYPE_ALLGATHER, floats(call.input, count),
                        floats(call.output, n * count));
      case Operation::all_to_all:
        return repeated(UCC_COLL_TYPE_ALLTOALL, floats(call.input, n * count),
                        floats(call.output, n * count));
      case Operation::broadcast:
        return repeated(UCC_COLL_TYPE_BCAST, floats(call.output, count), {});
      case Operation::reduce:
        return repeated(UCC_COLL_TYPE_REDUCE, floats(call.input, count),
                        floats(call.output, count));
      case Operation::send_recv:
        return round_trip(
            *this, [=, this](int peer) { pass(floats(call.input, count), rank_, peer); },
            [=, this](int peer) { pass(floats(call.output, count), peer, rank_); });
      case Operation::barrier: return [this] { barrier(); };
    }
    return {};
  }

 private:
  static ucc_coll_buffer_info_t buffer(void* data, std::size_t count, ucc_datatype_t type) {
    return {.buffer = data, .count = count, .datatype = type, .mem_type = UCC_MEMORY_TYPE_HOST};
  }
  static ucc_coll_buffer_info_t floats(float* data, std::size_t count) {
    return buffer(data, count, UCC_DT_FLOAT32);
  }

  static ucc_coll_args_t collective(ucc_coll_type_t type) {
    ucc_coll_args_t args{};
    args.coll_type = type;
    return args;
  }

  void make_context() {
    ucc_lib_params_t wanted{};
    wanted.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE;
    wanted.thread_mode = UCC_THREAD_SINGLE;
    ucc_lib_config_h library_config = nullptr;
    check(ucc_lib_config_read(nullptr, nullptr, &library_config), "ucc_lib_config_read");
    check(ucc_init(&wanted, library_config, &library_), "ucc_init");
    ucc_lib_config_release(library_config);
    ucc_context_params_t params{};
    params.mask = UCC_CONTEXT_PARAM_FIELD_OOB;
    params.oob = exchange_.for_ucc();
    ucc_context_config_h config = nullptr;
    check(ucc_context_config_read(library_, nullptr, &config), "ucc_context_config_read");
    check(ucc_context_create(library_, &params, config, &context_), "ucc_context_create");
    ucc_context_config_release(config);
  }

  void make_team() {
    ucc_team_params_t params{};
    params.mask =
        UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB;
    params.oob = exchange_.for_ucc();
    params.ep = static_cast<std::uint64_t>(rank_);
    params.ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG;
    check(ucc_team_create_post(&context_, 1, &params, &team_), "ucc_team_create_post");
    ucc_status_t status = UCC_INPROGRESS;
    while ((status = ucc_team_create_test(team_)) == UCC_INPROGRESS) ucc_context_progress(context_);
    check(status, "ucc_team_create_test");
  }

  /// UCC leaves it to the program how to wait: where ranks share a core, the one that waits makes
  /// way for others.
  void complete(ucc_coll_req_h request) {
    check(ucc_collective_post(request), "ucc_collective_post");
    ucc_status_t status = UCC_INPROGRESS;
    while ((status = ucc_collective_test(request)) == UCC_INPROGRESS) {
      ucc_context_progress(context_);
      if (crowded_) ::sched_yield();
    }
    check(status, "ucc_collective_test");
  }

  void run(ucc_coll_args_t args) {
    ucc_coll_req_h request = nullptr;
    check(ucc_collective_init(&args, &request, team_), "ucc_collective_init");
    complete(request);
    check(ucc_collective_finalize(request), "ucc_collective_finalize");
  }

  /// A persistent collective is set up once: that takes UCC longer than a small call.
  std::function<void()> repeated(ucc_coll_type_t type, ucc_coll_buffer_info_t source,
                                 ucc_coll_buffer_info_t destination, std::uint64_t flags = 0) {
    ucc_coll_args_t args = collective(type);
    args.src.info = source;
    args.dst.info = destination;
    args.op = UCC_OP_SUM;
    args.mask = UCC_COLL_ARGS_FIELD_FLAGS;
    args.flags = flags | UCC_COLL_ARGS_FLAG_PERSISTENT;
    ucc_coll_req_h request = nullptr;
    check(ucc_collective_init(&args, &request, team_), "ucc_collective_init");
    std::shared_ptr<ucc_coll_req> kept(request, ucc_collective_finalize);
    return [this, kept] { complete(kept.get()); };
  }

  /// A message is a broadcast between two ranks of the team, as in PyTorch's backend for UCC.
  void pass(ucc_coll_buffer_info_t data, int from, int to) {
    ucc_coll_args_t args = collective(UCC_COLL_TYPE_BCAST);
    args.mask = UCC_COLL_ARGS_FIELD_ACTIVE_SET | UCC_COLL_ARGS_FIELD_TAG;
    args.src.info = data;
    args.root = static_cast<std::uint64_t>(from);
    args.active_set.start = static_cast<std::uint64_t>(from);
    args.active_set.stride = to - from;
    args.active_set.size = 2;
    args.tag = 1;
    run(args);
  }

  int rank_, ranks_;
  bool crowded_;
  Exchange exchange_;
  ucc_lib_h library_ = nullptr;
  ucc_context_h context_ = nullptr;
  ucc_team_h team_ = nullptr;
};

}  // namespace
}  // namespace tutti::compare

int main(int argc, char** argv) {
  return tutti::compare::run_main("ucc_bench", [&] {
    if (argc < 2) throw std::invalid_argument("the first argument is a folder that ranks share");
    tutti::compare::Ucc ucc(argv[1]);
    return tutti::compare::measure(ucc, std::span(argv + 1, argv + argc));
  });
}
