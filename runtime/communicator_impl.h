// A communicator's inside: its transport, its programs, the operation under way and those that wait
// for it.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

#include "collectives/planning/prices.h"
#include "common/secret.h"
#include "runtime/call.h"
#include "runtime/diagnosis/diagnosis.h"
#include "runtime/diagnosis/stall_watch.h"
#include "runtime/engine/execution.h"
#include "runtime/engine/program_cache.h"
#include "runtime/engine/worker_pool.h"
#include "runtime/lender.h"
#include "runtime/membership/shrink.h"
#include "runtime/operation.h"
#include "runtime/own_algorithms.h"
#include "runtime/p2p/point_to_point.h"
#include "runtime/runtime.h"
#include "transport/channel.h"

namespace tutti {

struct SplitCard;

/// What a communicator shares with those that are split off it: one set of connections has one
/// bell.
struct SharedEndpoint {
  std::shared_ptr<const Doorbell> doorbell = std::make_shared<const Doorbell>();
  SleeperPool sleepers;  ///< Over the bell and the transport's wait_fd().
  int ranks = 1;         ///< Of the first communicator that share this machine's cores.
  int cores = 1;         ///< Which they share.
  std::atomic<int> communicators{0};     ///< Alive.
  std::atomic<std::uint64_t> splits{0};  ///< Splits of any of them that this rank has begun.
  std::size_t ring_bytes =
      0;  ///< Of each channel of its first communicators: configured, or by the caches.
};

/// What a communicator is made of; see setup.h.
struct CommunicatorParts {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<Store> store;            ///< Null in process.
  std::string name = {};                   ///< In the store; empty: it was split off another.
  Secret secret = {};                      ///< The job's.
  std::shared_ptr<SharedEndpoint> shared;  ///< Outlives the transport.
  std::unique_ptr<Transport> transport;    ///< Connected.
  int rank = 0;
  int size = 1;
  std::size_t message_bytes = 0;  ///< The largest message of a collective; agreed.
  std::size_t largest_message = std::numeric_limits<std::size_t>::max();  ///< That all links carry.
  bool rings = true;               ///< All ranks' links have rings; agreed.
  int cores = 1;                   ///< That its ranks on a machine share, on average; agreed.
  std::vector<int> machines = {};  ///< By rank, the number of its machine; none: all on one.
  Spread spread = Spread::one_machine;
  std::vector<int> groups = {};       ///< As PlanRequest::groups; agreed.
  std::shared_ptr<PriceList> prices;  ///< Of rank 0's machine; shared by those split off.
  std::vector<StartupPhase> startup;

  /// What is the same in all that this rank asks of algorithms.
  PlanRequest request() const { return {.rank = rank, .ranks = size, .groups = groups}; }
};

/// Threads. A blocking call with nothing pending runs in the caller's thread without a lock: the
/// contract is one calling thread at a time. Once operations are pending, whoever advances them
/// (the background thread, any waiter, the next blocking call) holds engine_mutex_ while it does,
/// and while it runs callbacks. Once `pending_` is 0 the owner touches the engine no more. A
/// group's own operation is ended by whoever ends its last part, under mutex_. The destructor takes
/// both.
class CommunicatorImpl final : public Progressable {
 public:
  explicit CommunicatorImpl(CommunicatorParts parts);
  ~CommunicatorImpl() override;

  int rank() const noexcept { return parts_.rank; }
  int size() const noexcept { return parts_.size; }
  const CommunicatorParts& parts() const noexcept { return parts_; }
  std::optional<Error> failure() const;
  void abort(std::string_view why);

  std::size_t memory_bytes() const {
    return parts_.transport->memory_bytes() + programs_.scratch_bytes();
  }
  /// For Buffer: memory that peers reach; none where they reach none.
  std::optional<Registration> lend(std::size_t bytes);
  const std::shared_ptr<Lender>& lender() const noexcept { return lender_; }

  OwnAlgorithms& own_algorithms() noexcept { return own_algorithms_; }
  std::vector<AlgorithmPrice> prices(const CallKind& kind);

  /// Of those that are alive, see Communicator::shrink().
  Communicator shrink(std::chrono::milliseconds patience);

  /// This rank's part of splitting the communicator by `card`; see split.h.
  std::optional<Communicator> split(SplitCard card);

  void run(const Call& call);
  Work start(const Call& call);
  Received run(const TransferCall& call);
  Work start(const TransferCall& call);

  /// Checked, and a collective with its program: for run() and start() any number of times.
  Persistent init(const Call& call);
  Persistent init(const TransferCall& call);
  void run(const PlannedCall& call);
  Work start(const PlannedCall& call);
  /// To be run when the group ends.
  void add_to(Group& group, const PlannedCall& call);
  void add_to(Group& group, const TransferCall& call);

  /// For groups: starts an operation of this communicator.
  OperationRef enqueue(OperationRef operation);
  /// Runs them in the calling thread until all are done. With nothing pending.
  void run_now(std::span<Transfer* const> transfers);
  /// That stands for a group's, and keeps this communicator until group_ended(), from any thread.
  OperationRef operation_of_group();
  /// The calling thread is about to run the callbacks of such an operation, perhaps while it
  /// advances another communicator.
  void group_ends();
  void group_ended();
  static Work work_of(const OperationRef& operation);
  bool in_callback() const noexcept;
  void refuse_in_callback() const;
  bool pending() const noexcept override { return pending_.load(std::memory_order_seq_cst) > 0; }
  bool advance_pending() noexcept override;

  /// Helps until `operation` is done or `limit` has passed; false: it has. Throws `usage` in a
  /// callback, which would wait for itself.
  bool help(const Operation& operation, TimePoint limit);

  void callback_threw(const char* what) noexcept;

  static Communicator make(CommunicatorParts parts);
  /// Keeps `used`, which the communicator's calls use, alive until the last call has ended.
  static void keep(Communicator& communicator, std::shared_ptr<void> used) noexcept {
    communicator.impl_->kept_ = std::move(used);
  }
  /// At once, or from a callback, which the end would wait for, in a thread of its own.
  static void destroy(std::unique_ptr<CommunicatorImpl> communicator) noexcept;

 private:
  // Progressable
  void look_pending() noexcept override;
  TimePoint next_deadline() const override;
  std::atomic<std::uint32_t>& sleepers() override { return status_page_.sleepers; }
  const Doorbell& doorbell() const override { return *parts_.shared->doorbell; }
  int wait_fd() const override { return parts_.transport->wait_fd(); }
  void arm() override { parts_.transport->arm(); }
  void disarm() noexcept override { parts_.transport->disarm(); }
  void background_progress() noexcept override;

  struct Armed {
    explicit Armed(Transport& slept_over) : transport(slept_over) { transport.arm(); }
    ~Armed() { transport.disarm(); }
    Armed(const Armed&) = delete;
    Armed& operator=(const Armed&) = delete;
    Transport& transport;
  };

  /// What follows from a call's kind and the algorithm that it names.
  struct Plan {
    CallKind kind;
    std::string algorithm;
    CallKey key;
    std::size_t result_bytes;
    bool checked = false;  ///< `input` and `output` have been found right.
    const void* input = nullptr;
    void* output = nullptr;
    std::shared_ptr<BoundProgram> program = nullptr;  ///< Engine: its owner only.
  };
  bool repeats(const Call& call) const noexcept;
  Plan& plan(const Call& call);
  std::chrono::milliseconds timeout_of(const Call& call) const;
  Plan plan_kind(const CallKind& kind, std::string_view algorithm);
  CallKey key_of(const CallKind& kind, std::string_view algorithm);
  Choice choose_algorithm(const CallKind& kind, std::string_view algorithm);
  int stripes_of(const CallKind& kind, std::uint32_t algorithm) const;
  SelectRequest request_of(const CallKind& kind) const;
  std::string selected(const CallKind& kind) const;
  bool usable() const noexcept;
  void check_usable(std::string_view what) const;
  void check(const TransferCall& call) const;
  static void add_to(Group& group, OperationRef operation);
  Accumulate accumulation_of(const CallKind& kind) const;
  bool accumulates_in_f32(const CallKind& kind) const;
  bool sums_reproducibly(const CallKind& kind) const;
  PlannedCall prepare(const Call& call);
  TransferCall prepare(const TransferCall& call) const;
  PlannedCall planned(const Call& call, const Plan& plan) const;
  OperationRef prepared(PlannedCall call);
  OperationRef prepared(const TransferCall& call);
  void run_behind(PlannedCall call);

  bool lends() const noexcept;
  std::optional<LentBuffers> lent_of(const CallSignature& call, const CallBuffers& buffers) const;

  // Engine: its owner only. Buffers of a call that is not variable have no blocks.
  void begin(BoundProgram& bound, CallBuffers& buffers, std::size_t result_bytes);
  void begin(const PlannedCall& call, const BlockTable* blocks);
  /// True once the call under way is done.
  bool advance_call() {
    return execution_.advance() && (!workers_.busy() || workers_.advance()) && all_left();
  }
  bool all_left() { return leaves_at_once_ || parts_.transport->all_left(); }
  void run_now(BoundProgram& bound, CallBuffers&& buffers, std::size_t result_bytes,
               std::chrono::milliseconds timeout);
  void run_now(const PlannedCall& call);
  void finish_now(std::chrono::milliseconds timeout);
  Error diagnose_thrown() const;
  void await_execution(std::chrono::milliseconds timeout);
  TimePoint next_heed(TimePoint deadline);
  void help_heeding(const Operation& operation);
  void complete() noexcept;
  void look(TimePoint deadline, Nanoseconds limit);
  void report_stall(TimePoint now);
  TimePoint next_look(TimePoint deadline);
  void advance_queue();
  Situation situation() const;

  template <typename Attempt>
  bool sleep(Attempt&& attempt, TimePoint deadline) {
    SharedEndpoint& shared = *parts_.shared;
    auto sleeper = shared.sleepers.take(shared.doorbell->fd(), parts_.transport->wait_fd());
    bool ended = false;
    {
      const Announced announced(sleepers(), *shared.doorbell);
      const Armed armed(*parts_.transport);
      ended = attempt();
      if (!ended && !failed_.load(std::memory_order_seq_cst))
        sleeper->sleep_until(deadline, parts_.runtime->clock());
    }
    shared.sleepers.give_back(std::move(sleeper));
    return ended;
  }
  void finish_front(std::optional<Error> error);
  void end(Operation& operation, std::optional<Error> error);
  void wake_waiters() const;
  void one_less_pending();
  void begin_queued(Operation& operation);
  void look_queue();

  // Point to point, see communicator_transfers.cpp. Engine: its owner only.
  void await_transfers(std::span<Transfer* const> transfers);
  void diagnose_messages();
  TimePoint next_message_look(TimePoint deadline);
  void advance_transfers();
  void start_transfers();
  bool end_transfers(const std::optional<Error>& error);
  void fail_transfers(const Error& error);
  void look_transfers();
  static void report(const Transfer& ended);
  bool drain(TimePoint limit = TimePoint::max());  ///< Helps until nothing is pending, or `limit`.
  template <typename Done>
  bool help_until(Done&& done, TimePoint limit);
  void fail(const Error& error) noexcept;

  std::shared_ptr<void> kept_;  // The first member, so that it is destroyed last.
  CommunicatorParts parts_;
  const WaitPolicy policy_;
  StatusPage& status_page_;               // the transport's own
  const bool leaves_at_once_;             // what is posted; see Transport::all_left()
  const bool wants_background_progress_;  // by the runtime; see Transport::background_progress()

  OwnAlgorithms own_algorithms_;
  const std::shared_ptr<Lender> lender_;
  const Segments* const segments_;  // that this rank lends; null: never any

  // Engine: its owner only.
  ProgramCache programs_;
  Execution execution_;
  WorkerPool workers_{[this] { wake_waiters(); }};  // for the other stripes of what execution_ runs
  std::uint64_t next_number_ = 0;
  StallWatch stalls_{parts_.runtime->config().stall};
  StallWatch message_stalls_{parts_.runtime->config().stall};
  bool under_way_ = false;
  std::atomic<TimePoint> deadline_{TimePoint::max()};  // of the operation under way; read by others
  PointToPoint messages_;
  std::atomic<TimePoint> transfer_deadline_{TimePoint::max()};  // the first; read by others

  std::unique_ptr<Shrinking> shrinking_;  // calling thread only; null before the first shrink()

  const std::shared_ptr<OperationPool> pool_ = std::make_shared<OperationPool>();
  OperationQueue queue_{pool_->take(this, {})};
  OperationQueue transfer_queue_{pool_->take(this, {})};
  std::atomic<std::thread::id> callback_thread_{};  // runs callbacks, and so owns the engine
  std::mutex engine_mutex_;                         // see above
  mutable std::mutex mutex_;
  std::optional<Error> failure_;     // guarded by mutex_; set once
  std::optional<Plan> last_plan_;    // calling thread only
  BlockTable blocks_;                // of the last variable call; as last_plan_
  bool registered_ = false;          // calling thread only
  bool (*interrupted_)() = nullptr;  // of the blocking call; calling thread only
  std::atomic<bool> failed_{false};  // failure_ is set
  std::atomic<int> pending_{0};
  std::atomic<int> groups_{0};                  // operations that stand for groups
  std::vector<std::thread::id> group_threads_;  // run their callbacks; guarded by mutex_
};

}  // namespace tutti
