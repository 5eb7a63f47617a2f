// Declares a queue pair over UCX: one end of a UCP endpoint, and the messages that it exchanges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/queue_pair/device.h"
#include "transport/ucx/worker.h"

namespace tutti::ucx {

class UcxRegion;

/// Sends, receives and reads by active messages. A read is a request that the peer's queue pair
/// answers, if the key that it names stands for memory that this rank has registered with this
/// queue pair to be read. All members are guarded by the worker's lock; functions that say so are
/// called with it held.
class UcxQueuePair final : public qp::QueuePair {
 public:
  /// The number of the active messages.
  static constexpr unsigned kMessage = 1;
  /// Counts the bytes of address() that come before the address of the worker.
  static constexpr std::size_t kAddressBytesBefore = sizeof(std::uint64_t);

  UcxQueuePair(std::shared_ptr<Worker> worker, const qp::QueueLimits& limits, void* owner);
  ~UcxQueuePair() override;
  UcxQueuePair(const UcxQueuePair&) = delete;
  UcxQueuePair& operator=(const UcxQueuePair&) = delete;

  std::string address() const override;
  void connect(std::string_view peer) override;
  qp::ReadLimits reads() const noexcept override;
  std::unique_ptr<qp::Region> add(std::byte* memory, std::size_t bytes, bool readable) override;
  bool send(std::uint32_t id, const qp::Piece& piece) noexcept override;
  bool receive(std::uint32_t id, const qp::Piece& piece) noexcept override;
  bool read(std::uint32_t id, const qp::Piece& to, std::uint64_t address,
            std::uint32_t remote_key) noexcept override;
  std::size_t poll(std::span<qp::Completion> completions) noexcept override;
  void arm() noexcept override;
  void stop() noexcept override;
  bool take_back_read(std::uint32_t id) noexcept override;
  bool is_flushed() noexcept override;
  bool needs_peer_process() const noexcept override { return true; }

  // The worker calls these functions, with its lock held.
  /// Takes a message whose header has been checked; UCX calls the worker. Where `rendezvous`,
  /// `data` is UCX's description of a message that is not here yet.
  ucs_status_t take(const Header& header, void* data, bool rendezvous) noexcept;
  /// Does what the last messages make necessary. Returns whether there was anything to be done.
  bool work() noexcept;
  /// Returns whether it has completions that event_fd() was to announce.
  bool has_event() const noexcept { return armed_ && !completions_.empty(); }
  /// Disarms it, and returns its owner.
  void* take_event() noexcept {
    armed_ = signalled_ = false;
    return owner_;
  }

 private:
  friend class UcxRegion;

  /// Something that UCX works at, which ends by finish().
  struct Operation {
    enum class What : std::uint8_t { frame, request, answer, arrival };
    UcxQueuePair* pair = nullptr;  // null where the queue pair has ended before
    What what = What::frame;
    std::uint32_t id = 0;              // of a frame
    std::uint32_t key = 0;             // of an answer: what is read
    std::uint64_t number = 0;          // of an arrival: the request that it answers
    Header header;                     // UCX reads it until the end
    std::shared_ptr<Mapping> mapping;  // of the memory that is read or written
    std::list<Operation>::iterator place;
  };
  /// A request to read that has not completed.
  struct Reading {
    std::uint32_t id = 0;
    qp::Piece to;
    bool begun = false;  // whether UCX writes there
  };
  struct Slot {
    std::uint32_t id = 0;
    qp::Piece piece;
  };
  /// A frame that has overtaken another one.
  struct Early {
    std::uint32_t id = 0, bytes = 0;
  };
  /// The answer to a request, which UCX can bring now.
  struct Arrived {
    std::uint64_t number = 0;
    void* description = nullptr;
    std::size_t bytes = 0;
  };

  // All functions below are called with the lock held.
  const Library& library() const noexcept { return worker_->library(); }
  void begin(Operation::What what, const Header& header, const void* data, std::uint32_t id,
             std::uint32_t key);
  void begin_send(Operation& operation, const void* data);
  void settle(Operation& operation, ucs_status_ptr_t started) noexcept;
  static void has_ended(void* request, ucs_status_t status, Operation& operation) noexcept;
  void finish(Operation& operation, ucs_status_t status) noexcept;
  ucs_status_t take_frame(const Header& header, const void* data, bool rendezvous);
  ucs_status_t take_answer(const Header& header, void* data, bool rendezvous);
  void serve(const Header& wanted);
  void bring(const Arrived& arrived);
  void complete(const qp::Completion& completion);
  void complete_read(std::uint64_t number, const char* error);
  void fail(const char* why) noexcept;
  void close() noexcept;
  void reap() noexcept;
  /// Returns whether UCX works at anything of this queue pair.
  bool is_with_ucx() const noexcept {
    return closing_ != nullptr || flushing_ != nullptr || !operations_.empty();
  }
  std::shared_ptr<Mapping> mapping_of(std::uint32_t key) const;

  const std::shared_ptr<Worker> worker_;
  const qp::QueueLimits limits_;
  void* const owner_;
  std::uint64_t token_ = 0;       // what messages to this end bear
  std::uint64_t peer_token_ = 0;  // what messages to the other end bear
  ucp_ep_h endpoint_ = nullptr;   // null before connect(), and once it is being closed
  ucs_status_ptr_t closing_ = nullptr, flushing_ = nullptr;
  bool to_close_ = false, has_asked_ = false;
  const char* error_ = nullptr;  // why it does no more work; a constant text
  bool armed_ = false, signalled_ = false;
  std::vector<qp::Completion> completions_;
  std::deque<Slot> posted_;
  std::uint64_t sent_ = 0, taken_ = 0;         // frames
  std::map<std::uint64_t, Early> early_;       // by number
  std::map<std::uint64_t, Reading> readings_;  // by number
  std::uint64_t last_read_ = 0;
  std::vector<Arrived> arrived_;
  std::vector<Header> wanted_;  // requests of the peer
  std::list<Operation> operations_;
  std::map<std::uint32_t, UcxRegion*> regions_;  // by key
};

}  // namespace tutti::ucx
