// tutti: a group of ranks, and everything that they can do together.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/error.hpp>
#include <tutti/export.hpp>
#include <tutti/options.hpp>
#include <tutti/reduction.hpp>
#include <tutti/store.hpp>
#include <tutti/types.hpp>
#include <tutti/work.hpp>

namespace tutti {

class CommunicatorImpl;

/// A group of ranks. Movable. Calls of one communicator are made by one thread at a time, in the
/// same order on every rank; different communicators are independent.
///
/// Errors, for every operation: `usage` (a bad argument: nothing has happened, correct it and go
/// on); `mismatch`, `peer_lost`, `timeout`, `corrupt` (the communicator has failed: every later
/// call throws the same; destroy it).
///
/// Each operation has three forms: `op` blocks; `op_async` returns at once; `op_init` checks and
/// plans now (`usage`), sends nothing, and is run any number of times.
///
/// Counts are elements. `input` and `output` may be the same buffer where "in place" says so; any
/// other overlap is `usage`. Buffers need no alignment. A count of 0 is a call like any other.
class TUTTI_API Communicator {
 public:
  /// Joins the job that the environment describes: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
  /// MASTER_PORT, as torch.distributed reads them (tutti-run sets them). Blocks until all ranks are
  /// there or the start-up deadline.
  static Communicator from_env();
  static Communicator from_env(const Config& config);

  /// Joins `size` ranks that share `store`.
  static Communicator create(std::shared_ptr<Store> store, int rank, int size);
  static Communicator create(std::shared_ptr<Store> store, int rank, int size,
                             const Config& config);

  /// `size` communicators of one process, by rank: one for each thread.
  static std::vector<Communicator> in_process(int size);
  static std::vector<Communicator> in_process(int size, const Config& config);

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  ///< Waits for asynchronous calls within their deadlines, says goodbye to peers,
                    ///< frees everything.

  /// Splits it: ranks that give the same `color` (0 or more) get a communicator of their own,
  /// ranked by `key` and then by their rank here; those with kNoColor none. Called by all ranks, as
  /// a collective is. Costs an all_gather here and no new start-up: the new one has the same
  /// connections and background thread, knows the algorithms that were added here, and lives on its
  /// own. Different communicators, related or not, may be used by different threads at the same
  /// time. Throws `mismatch` where ranks call different forms of it.
  std::optional<Communicator> split(int color, int key = 0);
  /// A second communicator of the same ranks.
  Communicator dup();
  /// Those of `ranks` (the same list on every rank), in that order. Called by all ranks; none for
  /// the others.
  std::optional<Communicator> subgroup(std::span<const int> ranks);

  /// After a failure: a new communicator of those ranks that call this, too, in their order here.
  /// Waits for each that is not known to have ended, `patience` at most: who comes later gets
  /// `timeout`, now and at every later call. Returns or throws when `patience` ends, or a little
  /// later. `usage` of one split off or in process. See docs/embedding.md.
  Communicator shrink(std::chrono::milliseconds patience = std::chrono::seconds(10));

  /// Memory for messages, status pages and partial results that this rank holds for it, in bytes:
  /// grows with the channels and the scratch that its calls have used.
  std::size_t memory_bytes() const;

  int rank() const noexcept;
  int size() const noexcept;
  /// The store it was made from; null for in_process.
  std::shared_ptr<Store> store() const;
  const std::vector<StartupPhase>& startup() const noexcept;
  /// The error that ended it, or none while it can be used.
  std::optional<Error> failure() const;
  /// Ends what is under way on this rank, in whatever thread, and on its peers: these calls and all
  /// later ones throw `peer_lost` naming this rank and `why`. May be called by any thread.
  void abort(std::string_view why);

  /// For calls whose options name it; every rank adds the same. Proved at its first use for a
  /// collective and root: a wrong one is `usage` on every rank with a counter-example, and nothing
  /// has been sent; ranks that plan differently get `mismatch`. Throws `usage` for a taken name.
  void add_algorithm(std::string name, Planner planner);

  /// What each algorithm that knows it would take for a call of `count`, the cheapest first: as
  /// predicted from what the machine costs (docs/selection.md), the same on every rank.
  std::vector<AlgorithmPrice> prices(Collective what, std::size_t count, DataType type,
                                     Op op = Op::sum, int root = 0);

  /// output[i] = op over all ranks of input[i]; the same bits on every rank. In place: input ==
  /// output.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, Op op,
                  const CallOptions& options = {});
  Work all_reduce_async(const void* input, void* output, std::size_t count, DataType type, Op op,
                        const CallOptions& options = {});
  Persistent all_reduce_init(const void* input, void* output, std::size_t count, DataType type,
                             Op op, const CallOptions& options = {});
  /// As all_reduce, on `root` alone; elsewhere `output` is not used and may be null.
  void reduce(const void* input, void* output, std::size_t count, DataType type, Op op, int root,
              const CallOptions& options = {});
  Work reduce_async(const void* input, void* output, std::size_t count, DataType type, Op op,
                    int root, const CallOptions& options = {});
  Persistent reduce_init(const void* input, void* output, std::size_t count, DataType type, Op op,
                         int root, const CallOptions& options = {});
  /// `buffer` of `root`, everywhere. In place by nature.
  void broadcast(void* buffer, std::size_t count, DataType type, int root,
                 const CallOptions& options = {});
  Work broadcast_async(void* buffer, std::size_t count, DataType type, int root,
                       const CallOptions& options = {});
  Persistent broadcast_init(void* buffer, std::size_t count, DataType type, int root,
                            const CallOptions& options = {});
  /// output = the inputs of all ranks, by rank; `count` elements from each. In place: input ==
  /// output + rank * count.
  void all_gather(const void* input, void* output, std::size_t count, DataType type,
                  const CallOptions& options = {});
  Work all_gather_async(const void* input, void* output, std::size_t count, DataType type,
                        const CallOptions& options = {});
  Persistent all_gather_init(const void* input, void* output, std::size_t count, DataType type,
                             const CallOptions& options = {});
  /// output = block `rank` of the reduction; `count` elements to each rank. In place: output ==
  /// input + rank * count.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, Op op,
                      const CallOptions& options = {});
  Work reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                            Op op, const CallOptions& options = {});
  Persistent reduce_scatter_init(const void* input, void* output, std::size_t count, DataType type,
                                 Op op, const CallOptions& options = {});
  /// On `root`: output = the inputs of all ranks, by rank; `count` elements from each. Elsewhere
  /// `output` is not used and may be null. In place, on `root`: input == output + rank * count.
  void gather(const void* input, void* output, std::size_t count, DataType type, int root,
              const CallOptions& options = {});
  Work gather_async(const void* input, void* output, std::size_t count, DataType type, int root,
                    const CallOptions& options = {});
  Persistent gather_init(const void* input, void* output, std::size_t count, DataType type,
                         int root, const CallOptions& options = {});
  /// output = block `rank` of `root`'s input; `count` elements to each rank. Elsewhere `input` is
  /// not used and may be null. In place, on `root`: output == input + rank * count.
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root,
               const CallOptions& options = {});
  Work scatter_async(const void* input, void* output, std::size_t count, DataType type, int root,
                     const CallOptions& options = {});
  Persistent scatter_init(const void* input, void* output, std::size_t count, DataType type,
                          int root, const CallOptions& options = {});
  /// Block r of the output = block `rank` of rank r's input; `count` elements from each to each. In
  /// place: input == output.
  void all_to_all(const void* input, void* output, std::size_t count, DataType type,
                  const CallOptions& options = {});
  Work all_to_all_async(const void* input, void* output, std::size_t count, DataType type,
                        const CallOptions& options = {});
  Persistent all_to_all_init(const void* input, void* output, std::size_t count, DataType type,
                             const CallOptions& options = {});
  /// Returns when every rank has called it.
  void barrier(const CallOptions& options = {});
  Work barrier_async(const CallOptions& options = {});
  Persistent barrier_init(const CallOptions& options = {});

  // --- blocks of different lengths: `counts` and `displacements` are in elements, and are read
  // before the call returns. Without displacements the blocks lie one behind the other. Blocks that
  // are written must not overlap. `mismatch` where ranks give the same block different counts. ---

  /// As all_gather, with counts[r] elements from rank r at output + displacements[r]: the same
  /// counts on every rank. In place: input == output + displacements[rank].
  void all_gatherv(const void* input, void* output, PerRank counts, PerRank displacements,
                   DataType type, const CallOptions& options = {});
  Work all_gatherv_async(const void* input, void* output, PerRank counts, PerRank displacements,
                         DataType type, const CallOptions& options = {});
  Persistent all_gatherv_init(const void* input, void* output, PerRank counts,
                              PerRank displacements, DataType type,
                              const CallOptions& options = {});
  /// As reduce_scatter, with counts[r] elements at input + displacements[r] to rank r: the same
  /// counts on every rank. In place: output == input + displacements[rank].
  void reduce_scatterv(const void* input, void* output, PerRank counts, PerRank displacements,
                       DataType type, Op op, const CallOptions& options = {});
  Work reduce_scatterv_async(const void* input, void* output, PerRank counts, PerRank displacements,
                             DataType type, Op op, const CallOptions& options = {});
  Persistent reduce_scatterv_init(const void* input, void* output, PerRank counts,
                                  PerRank displacements, DataType type, Op op,
                                  const CallOptions& options = {});
  /// As gather: `count` elements from this rank; on `root` counts[r] from rank r to output +
  /// displacements[r]. Elsewhere output, counts and displacements are not used. In place, on
  /// `root`: input == output + displacements[rank].
  void gatherv(const void* input, std::size_t count, void* output, PerRank counts,
               PerRank displacements, DataType type, int root, const CallOptions& options = {});
  Work gatherv_async(const void* input, std::size_t count, void* output, PerRank counts,
                     PerRank displacements, DataType type, int root,
                     const CallOptions& options = {});
  Persistent gatherv_init(const void* input, std::size_t count, void* output, PerRank counts,
                          PerRank displacements, DataType type, int root,
                          const CallOptions& options = {});
  /// As scatter: `count` elements to this rank; on `root` counts[r] at input + displacements[r] to
  /// rank r. Elsewhere input, counts and displacements are not used. In place, on `root`: output ==
  /// input + displacements[rank].
  void scatterv(const void* input, PerRank counts, PerRank displacements, void* output,
                std::size_t count, DataType type, int root, const CallOptions& options = {});
  Work scatterv_async(const void* input, PerRank counts, PerRank displacements, void* output,
                      std::size_t count, DataType type, int root, const CallOptions& options = {});
  Persistent scatterv_init(const void* input, PerRank counts, PerRank displacements, void* output,
                           std::size_t count, DataType type, int root,
                           const CallOptions& options = {});
  /// As all_to_all: input_counts[r] elements to rank r, output_counts[r] from it. In place: input
  /// == output, with the same counts and displacements for both.
  void all_to_allv(const void* input, PerRank input_counts, PerRank input_displacements,
                   void* output, PerRank output_counts, PerRank output_displacements, DataType type,
                   const CallOptions& options = {});
  Work all_to_allv_async(const void* input, PerRank input_counts, PerRank input_displacements,
                         void* output, PerRank output_counts, PerRank output_displacements,
                         DataType type, const CallOptions& options = {});
  Persistent all_to_allv_init(const void* input, PerRank input_counts, PerRank input_displacements,
                              void* output, PerRank output_counts, PerRank output_displacements,
                              DataType type, const CallOptions& options = {});

  /// With a reduction of the program's own (tutti/reduction.hpp), on elements of its own, all else
  /// alike. `reduction` is used until the call is done; of a persistent one, as long as that lives.
  /// Ranks compare its name and the size of its elements. What its function throws is `usage` here
  /// and on the peers, and ends the communicator.
  void all_reduce(const void* input, void* output, std::size_t count,
                  const UserReduction& reduction, const CallOptions& options = {});
  Work all_reduce_async(const void* input, void* output, std::size_t count,
                        const UserReduction& reduction, const CallOptions& options = {});
  Persistent all_reduce_init(const void* input, void* output, std::size_t count,
                             const UserReduction& reduction, const CallOptions& options = {});
  void reduce(const void* input, void* output, std::size_t count, const UserReduction& reduction,
              int root, const CallOptions& options = {});
  Work reduce_async(const void* input, void* output, std::size_t count,
                    const UserReduction& reduction, int root, const CallOptions& options = {});
  Persistent reduce_init(const void* input, void* output, std::size_t count,
                         const UserReduction& reduction, int root, const CallOptions& options = {});
  void reduce_scatter(const void* input, void* output, std::size_t count,
                      const UserReduction& reduction, const CallOptions& options = {});
  Work reduce_scatter_async(const void* input, void* output, std::size_t count,
                            const UserReduction& reduction, const CallOptions& options = {});
  Persistent reduce_scatter_init(const void* input, void* output, std::size_t count,
                                 const UserReduction& reduction, const CallOptions& options = {});
  void reduce_scatterv(const void* input, void* output, PerRank counts, PerRank displacements,
                       const UserReduction& reduction, const CallOptions& options = {});
  Work reduce_scatterv_async(const void* input, void* output, PerRank counts, PerRank displacements,
                             const UserReduction& reduction, const CallOptions& options = {});
  Persistent reduce_scatterv_init(const void* input, void* output, PerRank counts,
                                  PerRank displacements, const UserReduction& reduction,
                                  const CallOptions& options = {});

  /// Sends to rank `peer` under a tag (0 to INT_MAX). Returns when `buffer` may be written again:
  /// maybe at once, maybe when it is received. Messages to a rank are matched in their order.
  void send(const void* buffer, std::size_t count, DataType type, int peer, int tag,
            const CallOptions& options = {});
  Work send_async(const void* buffer, std::size_t count, DataType type, int peer, int tag,
                  const CallOptions& options = {});
  Persistent send_init(const void* buffer, std::size_t count, DataType type, int peer, int tag,
                       const CallOptions& options = {});
  /// Receives at most `count` elements from `peer` or kAnySource, with `tag` or kAnyTag. A longer
  /// message, or one of another type, is `mismatch`. See docs/point-to-point.md.
  Received recv(void* buffer, std::size_t count, DataType type, int peer, int tag,
                const CallOptions& options = {});
  Work recv_async(void* buffer, std::size_t count, DataType type, int peer, int tag,
                  const CallOptions& options = {});
  Persistent recv_init(void* buffer, std::size_t count, DataType type, int peer, int tag,
                       const CallOptions& options = {});

  template <typename T>
  void all_reduce(std::span<T> data, Op op = Op::sum, const CallOptions& options = {}) {
    all_reduce(data.data(), data.data(), data.size(), data_type_of<T>(), op, options);
  }
  template <typename T>
  Work all_reduce_async(std::span<T> data, Op op = Op::sum, const CallOptions& options = {}) {
    return all_reduce_async(data.data(), data.data(), data.size(), data_type_of<T>(), op, options);
  }
  template <typename T>
  void broadcast(std::span<T> data, int root, const CallOptions& options = {}) {
    broadcast(data.data(), data.size(), data_type_of<T>(), root, options);
  }
  // Blocks of one length: where one span holds those of all ranks, that has size() times the
  // elements of the other, else `usage`.
  template <typename T>
  void all_gather(InputSpan<T> input, std::span<T> output, const CallOptions& options = {}) {
    const std::size_t count = block(input.size(), output.size());
    all_gather(input.data(), output.data(), count, data_type_of<T>(), options);
  }
  template <typename T>
  void reduce_scatter(InputSpan<T> input, std::span<T> output, Op op = Op::sum,
                      const CallOptions& options = {}) {
    const std::size_t count = block(output.size(), input.size());
    reduce_scatter(input.data(), output.data(), count, data_type_of<T>(), op, options);
  }
  template <typename T>
  void gather(InputSpan<T> input, std::span<T> output, int root, const CallOptions& options = {}) {
    const std::size_t count = rank() == root ? block(input.size(), output.size()) : input.size();
    gather(input.data(), output.data(), count, data_type_of<T>(), root, options);
  }
  template <typename T>
  void scatter(InputSpan<T> input, std::span<T> output, int root, const CallOptions& options = {}) {
    const std::size_t count = rank() == root ? block(output.size(), input.size()) : output.size();
    scatter(input.data(), output.data(), count, data_type_of<T>(), root, options);
  }
  template <typename T>
  void all_to_all(InputSpan<T> input, std::span<T> output, const CallOptions& options = {}) {
    const std::size_t count = output.size() / static_cast<std::size_t>(size());
    block(count, input.size());
    all_to_all(input.data(), output.data(), block(count, output.size()), data_type_of<T>(),
               options);
  }
  template <typename T>
  void send(std::span<T> data, int peer, int tag = 0, const CallOptions& options = {}) {
    send(data.data(), data.size(), data_type_of<T>(), peer, tag, options);
  }
  template <typename T>
  Work send_async(std::span<T> data, int peer, int tag = 0, const CallOptions& options = {}) {
    return send_async(data.data(), data.size(), data_type_of<T>(), peer, tag, options);
  }
  template <typename T>
  Received recv(std::span<T> data, int peer, int tag = 0, const CallOptions& options = {}) {
    return recv(data.data(), data.size(), data_type_of<T>(), peer, tag, options);
  }
  template <typename T>
  Work recv_async(std::span<T> data, int peer, int tag = 0, const CallOptions& options = {}) {
    return recv_async(data.data(), data.size(), data_type_of<T>(), peer, tag, options);
  }

 private:
  friend class Buffer;
  friend class CommunicatorImpl;
  explicit Communicator(std::unique_ptr<CommunicatorImpl> impl);
  /// `elements`, of which all ranks together have `all`; else throws `usage`.
  std::size_t block(std::size_t elements, std::size_t all) const;
  std::unique_ptr<CommunicatorImpl> impl_;
};

}  // namespace tutti
