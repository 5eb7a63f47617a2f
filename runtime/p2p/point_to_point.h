// Sends and receives between two ranks, on channels separate from those of collectives; see
// docs/point-to-point.md for the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/schedule/program.h"
#include "runtime/engine/ports.h"
#include "runtime/p2p/matching.h"
#include "runtime/p2p/transfer.h"
#include "transport/channel.h"

namespace tutti {

/// Moves the point-to-point messages of one communicator. One thread at a time (the owner of the
/// engine) uses it. It never blocks, and allocates only when it has to keep more messages than ever
/// before.
///
/// Invariants: a transfer under way is in live_, and at one stage: to_announce -> ended (eager), or
/// to_announce -> announced -> sending -> ended; posted -> ended, or posted -> to_clear ->
/// receiving -> ended. A peer's channels are polled only while a transfer of this rank waits for
/// that peer, or for any rank: otherwise, no rank can be waiting for something that depends on it.
class PointToPoint {
 public:
  /// The credits that the eager messages to one peer may use which no receive has matched yet.
  /// Further messages are announced by a request to send.
  static constexpr unsigned kCredit = 64;
  /// An eager message costs one credit for each started block of this many bytes.
  static constexpr std::size_t kBytesPerCredit = 4096;
  /// Longer messages use the rendezvous protocol: they are announced, and sent when the receiver
  /// asks for them. An announcement costs two more transfers between the cores, an unexpected
  /// message is copied twice more, and the two ranks cannot copy an eager message at the same time.
  /// A round trip of 8 KiB takes 1.72 us eager and 2.01 announced, one of 16 KiB 2.98 and 2.89.
  static constexpr std::size_t kEagerBytes = 8192;
  /// Channel numbers; those of collectives begin at 0.
  static constexpr int kControlChannel = 1 << 16;
  static constexpr int kBulkChannel = kControlChannel + 1;
  static_assert(kControlChannel >= kMostStripes * kStripeChannels);
  static_assert(kEagerBytes <= kCredit / 2 * kBytesPerCredit, "one message never takes all credit");

  /// `shares_cores` says that this machine has more ranks than cores.
  PointToPoint(Transport& transport, int rank, int size, bool shares_cores = false);

  /// Starts a checked call, and advances it as far as possible now. Throws what advance() throws.
  void start(Transfer& transfer);

  /// Does all that can be done now, but stops when `awaited` is done. Throws `mismatch` if a
  /// message is not what its receive expects, `corrupt` if a message is malformed, and
  /// `unavailable` if a channel cannot be made: then the communicator has failed, and abandon()
  /// ends the remaining transfers.
  void advance(const Transfer* awaited = nullptr);

  /// Removes and returns a transfer that has ended, or returns null if there is none.
  Transfer* take_ended() noexcept { return ended_.pop_front(); }
  const LiveTransfers& ended() const noexcept { return ended_; }
  /// Ends all transfers, whether or not they are done.
  void abandon() noexcept;

  /// Whether a message of `rank`, which is not this rank, has arrived and is not taken yet: its
  /// payload may still be on its way, see RecvChannel::get().
  bool has_arrived(int rank) const;

  bool idle() const noexcept { return live_.empty(); }
  const LiveTransfers& live() const noexcept { return live_; }
  const Matching& matching() const noexcept { return matching_; }
  /// Returns the ranks for which transfers wait, beside those that wait for any rank.
  const std::vector<int>& awaited_ranks() const noexcept { return watched_; }
  bool awaits_any_rank() const noexcept { return any_watchers_ > 0; }

 private:
  struct Envelope;
  struct Peer {
    std::optional<SendPort> control_out, bulk_out;
    std::optional<RecvPort> control_in, bulk_in;
    std::size_t largest_message = 0;        ///< The largest message that the link to it carries.
    std::size_t eager_bytes = kEagerBytes;  ///< The longest eager message to it.
    unsigned credit = kCredit;              ///< For eager messages to it.
    unsigned owed = 0;                      ///< Credit to be given back to it.
    unsigned used = 0;                      ///< Credit of its messages that are kept, and `owed`.
    std::uint32_t next_id = 0;              ///< The number of the next message to it.
    int watchers = 0;                       ///< Transfers that wait for it.
    StagedTransfers to_announce, sending;   // sends
    KeyedTable<Transfer, &Transfer::stage_link, &Transfer::key> announced;  // sends, by their id
    StagedTransfers to_clear, receiving;                                    // receives
  };

  [[maybe_unused]] bool is_sound() const noexcept;
  int next_turn() noexcept;
  bool advance(int rank);
  bool receive_control(int rank);
  bool announce(int rank);
  bool send_clear(int rank);
  bool send_data(int rank);
  Memory zero_copy_of(Transfer& send, SendPort& port);
  bool by_kernel(Transfer& send, SendPort& port);
  static bool fill(SendPort& port, const Transfer& send, std::size_t bytes);
  bool receive_data(int rank);
  void return_credit(int rank);

  void start_send(Transfer& send);
  void start_recv(Transfer& recv);
  void start_own_send(Transfer& send);
  void accept(Transfer& recv, const Envelope& envelope, int source, std::uint32_t id) const;
  void accept(Transfer& recv, const UnexpectedMessage& message) const;
  void take_eager(int rank, const Envelope& envelope, const Message& message);
  void take_request_to_send(int rank, const Envelope& envelope, std::uint32_t id);
  void start_sending(int rank, std::uint32_t id);
  void ask_for(Transfer& recv, int source);
  void end(Transfer& transfer);

  std::byte* acquire_control(int rank, std::size_t payload_bytes);
  void post_control(int rank, std::byte* slot, Envelope envelope, std::uint32_t id,
                    std::size_t payload_bytes);
  void watch(Transfer& transfer, int peer);
  void unwatch(const Transfer& transfer);
  Peer& peer(int rank);
  [[noreturn]] void refuse(int rank, const std::string& what) const;

  Transport& transport_;
  const int rank_;
  const bool shares_cores_;
  const int size_;
  // Indexed by rank; an entry is null until this rank first communicates with that peer; empty
  // before start().
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<int> watched_;  // ranks that have watchers
  int any_watchers_ = 0;      // receives that wait for any rank
  std::size_t turn_ = 0;      // index in watched_ or peers_ of the rank that was polled last
  ReadableMemory readable_;   // of sends whose messages the kernel copies
  Matching matching_;
  LiveTransfers live_;
  int live_receives_ = 0;  // the number of receives in live_
  LiveTransfers ended_;
};

}  // namespace tutti
