// Sends and receives between two ranks, on channels of their own beside the collectives; see
// docs/point-to-point.md for the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/engine/execution.h"
#include "runtime/p2p/matching.h"
#include "runtime/p2p/transfer.h"
#include "transport/channel.h"

namespace tutti {

/// One communicator's point-to-point messages. One thread at a time (whoever owns the engine).
/// Never blocks; allocates only to keep more messages than ever before.
///
/// Invariants: a transfer under way is in live_, and at one stage: to_announce -> ended (eager), or
/// to_announce -> announced -> sending -> ended; posted -> ended, or posted -> to_clear ->
/// receiving
/// -> ended. What a peer's channels hold is looked at while a transfer of this rank waits for that
/// peer, or for any: nothing that others wait for can depend on it otherwise.
class PointToPoint {
 public:
  /// What eager messages to one peer that no receive has matched yet may cost; more of them are
  /// announced.
  static constexpr unsigned kCredit = 64;
  /// A message costs one credit for each so many bytes that it has begun.
  static constexpr std::size_t kBytesPerCredit = 4096;
  /// Longer messages are announced, and sent when they are asked for. An announcement costs two
  /// more ways between the cores, keeping a message costs two more copies of it, and an eager one
  /// is not copied by both ranks at once: there and back 8 KiB take 1.72 us eager and 2.01
  /// announced, 16 KiB 2.98 and 2.89.
  static constexpr std::size_t kEagerBytes = 8192;
  /// Channel numbers; collectives count from 0.
  static constexpr int kControlChannel = 1 << 16;
  static constexpr int kBulkChannel = kControlChannel + 1;

  /// `shares_cores`: ranks of this machine outnumber its cores.
  PointToPoint(Transport& transport, int rank, int size, bool shares_cores = false);

  /// Takes up a checked call, and moves it as far as it goes. Throws as advance() does.
  void start(Transfer& transfer);

  /// Does all that can be done now, or until `awaited` is done. Throws `mismatch` where a message
  /// is not what its receive expects, `corrupt` where it makes no sense, `unavailable` where a
  /// channel cannot be made: then the communicator has failed, and abandon() ends the rest.
  void advance(const Transfer* awaited = nullptr);

  /// Transfers that have ended, one by one; null: no more.
  Transfer* take_ended() noexcept { return ended_.pop_front(); }
  const LiveTransfers& ended() const noexcept { return ended_; }
  /// Ends all, done or not.
  void abandon() noexcept;

  bool idle() const noexcept { return live_.empty(); }
  const LiveTransfers& live() const noexcept { return live_; }
  const Matching& matching() const noexcept { return matching_; }

 private:
  struct Envelope;
  struct Peer {
    std::optional<SendPort> control_out, bulk_out;
    std::optional<RecvPort> control_in, bulk_in;
    std::size_t largest_message = 0;                  ///< Of the link to it.
    std::size_t eager_bytes = kEagerBytes;            ///< The longest eager message to it.
    unsigned credit = kCredit;                        ///< For eager messages to it.
    unsigned owed = 0;                                ///< Credit to be given back to it.
    std::uint32_t next_id = 0;                        ///< Of the next message to it.
    int watchers = 0;                                 ///< Transfers that wait for it.
    StagedTransfers to_announce, announced, sending;  // sends
    StagedTransfers to_clear, receiving;              // receives
  };

  int next_turn() noexcept;
  bool advance(int rank);
  bool hear(int rank);
  bool announce(int rank);
  bool send_clear(int rank);
  bool send_data(int rank);
  Memory zero_copy_of(const TransferCall& send, const SendPort& port) const;
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
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: not met yet. None before start()
  std::vector<int> watched_;                  // ranks that have watchers
  int any_watchers_ = 0;                      // receives that wait for any rank
  std::size_t turn_ = 0;                      // of whom was heard last, in watched_ or peers_
  Matching matching_;
  LiveTransfers live_;
  int live_receives_ = 0;  // of live_
  LiveTransfers ended_;
};

}  // namespace tutti
