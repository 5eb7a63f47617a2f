// tutti: a communicator, which is a group of ranks, and all its operations.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// The result of Communicator::agree(), the same on every rank that gets one.
struct Agreement {
  std::uint64_t flags = 0;  ///< The bitwise AND of the flags of the ranks that took part.
  std::vector<int> absent;  ///< The ranks that did not take part, in ascending order.
};

/// A group of ranks. Movable. One thread at a time calls a communicator, in the same order on every
/// rank; different communicators, related or not, are independent.
///
/// Every operation may throw `usage` (a bad argument: nothing has happened, correct it and go on),
/// or `mismatch`, `peer_lost`, `timeout` or `corrupt` (the communicator has failed, and every later
/// call throws the same error: destroy it).
///
/// Each operation has three forms: `op` blocks; `op_async` returns at once; `op_init` checks and
/// plans the call (`usage`) and sends nothing, and the result can be run any number of times.
///
/// Counts are numbers of elements. `input` and `output` may be the same memory as each operation's
/// "in place" says; every other overlap is `usage`. Buffers need no alignment. Counts may be 0.
class TUTTI_API Communicator {
 public:
  /// Joins the job that RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT describe
  /// (tutti-run sets them). Blocks until all ranks have joined or the start-up deadline has passed.
  static Communicator from_env(const Config& config = Config::from_env());

  /// Joins `size` ranks that share `store`, as rank `rank`.
  static Communicator create(std::shared_ptr<Store> store, int rank, int size,
                             const Config& config = Config::from_env());

  /// Comes to a running job, whose ranks call grow(), and returns the communicator that they get.
  /// The process needs no rank: MASTER_ADDR and MASTER_PORT, or a store in the configuration, say
  /// where the job is (docs/launching.md). `timeout` if the job is not there within 15 s, or nobody
  /// calls grow() by the start-up timeout.
  static Communicator join(const Config& config = Config::from_env());
  /// Does the same over `store`, which is that of the job's ranks.
  static Communicator join(const std::shared_ptr<Store>& store, const Config& config);

  /// Makes communicators for `size` ranks of this process, in the order of ranks, one a thread.
  static std::vector<Communicator> in_process(int size, const Config& config = Config::from_env());

  /// A communicator that was moved from may only be destroyed or assigned to.
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  ///< Waits for asynchronous calls, to their deadlines; then leaves its peers.

  /// Splits the communicator. All ranks call it, as they do a collective. Ranks that pass the same
  /// `color` (0 or more) get a communicator of their own, in which they are ordered by `key`, then
  /// by their rank here; those that pass kNoColor get none. It costs an all_gather and no start-up:
  /// the new communicator uses the same connections and background thread, has the algorithms that
  /// were added here, and has its own lifetime. Throws `mismatch` if ranks call different forms.
  std::optional<Communicator> split(int color, int key = 0);
  /// Makes a second communicator of the same ranks. All ranks call it.
  Communicator dup();
  /// Makes one of `ranks`, in that order. All ranks call it with the same list; others get none.
  std::optional<Communicator> subgroup(std::span<const int> ranks);

  /// After a failure, makes a communicator of the ranks that call this function, in their order
  /// here. Waits up to `patience` for each rank that is not known to have ended, and ends by then
  /// or a little later. Fewer ranks than `least` do not go on: they get `timeout`, and may call it
  /// again. A rank that calls it too late gets `timeout`, then and from every later shrink().
  /// `usage` if this was split off or made in_process. See docs/embedding.md.
  Communicator shrink(std::chrono::milliseconds patience = std::chrono::seconds(10), int least = 1);
  /// Makes one of exactly those ranks that are not in `ranks`, also where nothing has failed. They
  /// all call it with the same list (else `mismatch`); for the others, shrink() throws.
  Communicator shrink_without(std::span<const int> ranks,
                              std::chrono::milliseconds patience = std::chrono::seconds(10));

  /// Makes a communicator of all ranks, in their order, followed by `newcomers` processes that have
  /// called join() or do so within `patience`. All ranks call it with the same number. All get it,
  /// or none does: `timeout` where too few came, `peer_lost` where a rank has ended (call shrink()
  /// first), `mismatch` where one has other settings; this communicator stays as it is, and grow()
  /// may be called again. `usage` where shrink() is. See docs/embedding.md.
  Communicator grow(int newcomers, std::chrono::milliseconds patience = std::chrono::seconds(10));
  /// Agrees with the other ranks on the bitwise AND of their `flags`, and on who took part. All
  /// ranks call it, as they do a collective, also after a failure. Waits up to `patience` for each
  /// rank that is not known to have ended. All that return get the same, and one that comes too
  /// late does, too. `peer_lost` where the store is lost. `usage` where shrink() is.
  Agreement agree(std::uint64_t flags,
                  std::chrono::milliseconds patience = std::chrono::seconds(10));

  /// The bytes that this rank holds for the communicator's messages, status pages and partial
  /// results. They grow with the channels and the scratch memory that its calls have used.
  std::size_t memory_bytes() const;

  int rank() const noexcept;
  int size() const noexcept;
  /// Returns the GPU whose kernels run its collectives (Config::device), or -1 where the host runs
  /// them, as it does where not all ranks share memory.
  int device() const noexcept;
  /// The store that it was made from; null if in_process made it.
  std::shared_ptr<Store> store() const;
  const std::vector<StartupPhase>& startup() const noexcept;
  /// The error that ended the communicator, or none while it can be used.
  std::optional<Error> failure() const;
  /// Ends all calls on this rank, in whatever thread they are, and on its peers: these calls and
  /// all later ones throw `peer_lost`, which names this rank and `why`. Any thread may call it.
  void abort(std::string_view why);

  /// Adds an algorithm for calls whose options name it; every rank adds the same. Its first use for
  /// a collective and root verifies it: a wrong one is `usage` on every rank, with a
  /// counter-example, before anything is sent. If ranks plan differently, it is `mismatch`. A taken
  /// name is `usage`.
  void add_algorithm(std::string name, Planner planner);

  /// Adds the algorithms of a file of schedules, or of a folder's for this number of ranks; every
  /// rank adds the same. Returns their names. A malformed or wrong one is `usage`
  /// (docs/planning.md).
  std::vector<std::string> add_schedules(const std::string& path);

  /// The predicted time of a call of `count` elements with each algorithm that can serve it, the
  /// fastest first; the same on every rank (docs/selection.md).
  std::vector<AlgorithmPrice> prices(Collective what, std::size_t count, DataType type,
                                     Op op = Op::sum, int root = 0);
  /// Such a call as text: its algorithm, size of messages, and this rank's schedule (to_text()).
  std::string explain(Collective what, std::size_t count, DataType type, Op op = Op::sum,
                      int root = 0);

  /// Sets output[i] to the reduction of input[i] over all ranks, with the same bits on every rank.
  /// In place: input == output. Every call that reduces takes CallOptions::reduction in place of
  /// `type` and `op`.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, Op op,
                  const CallOptions& options = {});
  Work all_reduce_async(const void* input, void* output, std::size_t count, DataType type, Op op,
                        const CallOptions& options = {});
  Persistent all_reduce_init(const void* input, void* output, std::size_t count, DataType type,
                             Op op, const CallOptions& options = {});
  /// Does what all_reduce does on `root` only; others do not use `output`, which may be null.
  void reduce(const void* input, void* output, std::size_t count, DataType type, Op op, int root,
              const CallOptions& options = {});
  Work reduce_async(const void* input, void* output, std::size_t count, DataType type, Op op,
                    int root, const CallOptions& options = {});
  Persistent reduce_init(const void* input, void* output, std::size_t count, DataType type, Op op,
                         int root, const CallOptions& options = {});
  /// Copies `buffer` of `root` to `buffer` of every other rank.
  void broadcast(void* buffer, std::size_t count, DataType type, int root,
                 const CallOptions& options = {});
  Work broadcast_async(void* buffer, std::size_t count, DataType type, int root,
                       const CallOptions& options = {});
  Persistent broadcast_init(void* buffer, std::size_t count, DataType type, int root,
                            const CallOptions& options = {});
  /// Gathers `count` elements of each rank in `output`, in the order of ranks. In place: input ==
  /// output + rank * count.
  void all_gather(const void* input, void* output, std::size_t count, DataType type,
                  const CallOptions& options = {});
  Work all_gather_async(const void* input, void* output, std::size_t count, DataType type,
                        const CallOptions& options = {});
  Persistent all_gather_init(const void* input, void* output, std::size_t count, DataType type,
                             const CallOptions& options = {});
  /// Reduces `input` and stores block `rank` of the result, `count` elements, in `output`. In
  /// place: output == input + rank * count.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, Op op,
                      const CallOptions& options = {});
  Work reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                            Op op, const CallOptions& options = {});
  Persistent reduce_scatter_init(const void* input, void* output, std::size_t count, DataType type,
                                 Op op, const CallOptions& options = {});
  /// Does what all_gather does on `root` only; others do not use `output`, which may be null. In
  /// place, on `root`: input == output + rank * count.
  void gather(const void* input, void* output, std::size_t count, DataType type, int root,
              const CallOptions& options = {});
  Work gather_async(const void* input, void* output, std::size_t count, DataType type, int root,
                    const CallOptions& options = {});
  Persistent gather_init(const void* input, void* output, std::size_t count, DataType type,
                         int root, const CallOptions& options = {});
  /// Stores block `rank`, `count` elements, of `input` of `root` in `output`; others than `root` do
  /// not use `input`, which may be null. In place, on `root`: output == input + rank * count.
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root,
               const CallOptions& options = {});
  Work scatter_async(const void* input, void* output, std::size_t count, DataType type, int root,
                     const CallOptions& options = {});
  Persistent scatter_init(const void* input, void* output, std::size_t count, DataType type,
                          int root, const CallOptions& options = {});
  /// Stores block `rank` of `input` of each rank r as block r of `output`, `count` elements each.
  /// In place: input == output.
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

  // --- Blocks of different lengths: `counts` and `displacements` are in elements, and are read
  // before the call returns. Without displacements the blocks lie one after the other. Blocks that
  // are written must not overlap. Ranks that give one block different counts get `mismatch`. ---

  /// Gathers counts[r] elements of each rank r at output + displacements[r]. The counts are the
  /// same on every rank. In place: input == output + displacements[rank].
  void all_gatherv(const void* input, void* output, PerRank counts, PerRank displacements,
                   DataType type, const CallOptions& options = {});
  Work all_gatherv_async(const void* input, void* output, PerRank counts, PerRank displacements,
                         DataType type, const CallOptions& options = {});
  Persistent all_gatherv_init(const void* input, void* output, PerRank counts,
                              PerRank displacements, DataType type,
                              const CallOptions& options = {});
  /// Reduces, and gives rank r the counts[r] elements at input + displacements[r]. The counts are
  /// the same on every rank. In place: output == input + displacements[rank].
  void reduce_scatterv(const void* input, void* output, PerRank counts, PerRank displacements,
                       DataType type, Op op, const CallOptions& options = {});
  Work reduce_scatterv_async(const void* input, void* output, PerRank counts, PerRank displacements,
                             DataType type, Op op, const CallOptions& options = {});
  Persistent reduce_scatterv_init(const void* input, void* output, PerRank counts,
                                  PerRank displacements, DataType type, Op op,
                                  const CallOptions& options = {});
  /// Gathers `count` elements of this rank; `root` stores counts[r] elements of rank r at output +
  /// displacements[r]. Others do not use output, counts and displacements. In place, on `root`:
  /// input == output + displacements[rank].
  void gatherv(const void* input, std::size_t count, void* output, PerRank counts,
               PerRank displacements, DataType type, int root, const CallOptions& options = {});
  Work gatherv_async(const void* input, std::size_t count, void* output, PerRank counts,
                     PerRank displacements, DataType type, int root,
                     const CallOptions& options = {});
  Persistent gatherv_init(const void* input, std::size_t count, void* output, PerRank counts,
                          PerRank displacements, DataType type, int root,
                          const CallOptions& options = {});
  /// Stores `count` elements in `output` of this rank; `root` has counts[r] elements for rank r at
  /// input + displacements[r]. Others do not use input, counts and displacements. In place, on
  /// `root`: output == input + displacements[rank].
  void scatterv(const void* input, PerRank counts, PerRank displacements, void* output,
                std::size_t count, DataType type, int root, const CallOptions& options = {});
  Work scatterv_async(const void* input, PerRank counts, PerRank displacements, void* output,
                      std::size_t count, DataType type, int root, const CallOptions& options = {});
  Persistent scatterv_init(const void* input, PerRank counts, PerRank displacements, void* output,
                           std::size_t count, DataType type, int root,
                           const CallOptions& options = {});
  /// Sends input_counts[r] elements to each rank r and receives output_counts[r] elements from it.
  /// In place: input == output, with the same counts and displacements for both.
  void all_to_allv(const void* input, PerRank input_counts, PerRank input_displacements,
                   void* output, PerRank output_counts, PerRank output_displacements, DataType type,
                   const CallOptions& options = {});
  Work all_to_allv_async(const void* input, PerRank input_counts, PerRank input_displacements,
                         void* output, PerRank output_counts, PerRank output_displacements,
                         DataType type, const CallOptions& options = {});
  Persistent all_to_allv_init(const void* input, PerRank input_counts, PerRank input_displacements,
                              void* output, PerRank output_counts, PerRank output_displacements,
                              DataType type, const CallOptions& options = {});

  /// Sends to rank `peer` with a tag (0 to INT_MAX). Returns when `buffer` may be written again: at
  /// once, or when a receive has taken it. Messages to one rank are matched in their order.
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
  // The blocks have one length. A span with the blocks of all ranks must have size() times as many
  // elements as the other span; otherwise it is `usage`.
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
  /// Returns `elements` if `all` is size() times as many; otherwise throws `usage`.
  std::size_t block(std::size_t elements, std::size_t all) const;
  std::unique_ptr<CommunicatorImpl> impl_;
};

}  // namespace tutti
