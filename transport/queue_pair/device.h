// Declares what connections need of a device: queue pairs with their completions, and registered
// memory. rdma/ implements it by libibverbs, ucx/ by libucp; tests implement it without a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::qp {

/// The longest address of a queue pair, in bytes.
inline constexpr std::size_t kMostAddressBytes = 8 << 10;

/// Represents memory that one queue pair may use, from the call that registers it to the
/// destruction of this object, at which the device forgets it.
class Region {
 public:
  virtual ~Region() = default;
  /// Returns the key by which this process names the memory in its work requests.
  virtual std::uint32_t local_key() const noexcept = 0;
  /// Returns the key by which the queue pair's peer, and nobody else, reads the memory.
  virtual std::uint32_t remote_key() const noexcept = 0;
};

/// Describes registered memory of this process.
struct Piece {
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t local_key = 0;
};

/// One work request that the device has finished.
struct Completion {
  enum class What : std::uint8_t {
    sent,
    received,
    read,
    nothing,  ///< No request: the queue pair cannot be asked any more for those that it was given.
  };
  What what = What::sent;
  std::uint32_t id = 0;     ///< The number that the request was given.
  std::uint32_t bytes = 0;  ///< The length of what was received.
  /// The reason where the request failed, and null where it did not. The text is constant. A queue
  /// pair does no more work after a failure.
  const char* error = nullptr;
};

/// Says what two connected queue pairs may read from each other.
struct ReadLimits {
  std::uint32_t at_once = 0;  ///< Requests to read that this end may have under way; 0 if none.
  bool peer_reads = false;    ///< Whether the peer may read memory of this end.
  std::size_t bytes = 0;      ///< The longest request to read, of either end.
};

/// Represents one end of a reliable connection. Requests of one kind complete in order, and each
/// once; those that fail because another one has failed complete after it. Used by one thread at a
/// time, but for add().
class QueuePair {
 public:
  /// Once it returns, the device touches no memory for this queue pair.
  virtual ~QueuePair() = default;

  /// Returns what the peer needs for connect(), in at most kMostAddressBytes.
  virtual std::string address() const = 0;
  /// Connects to the queue pair with that address, which comes from another process and is checked.
  /// Requests to receive may be posted before, and others afterwards. Throws `unavailable`.
  virtual void connect(std::string_view peer) = 0;

  /// Returns, once connected, what both devices allow.
  virtual ReadLimits reads() const noexcept = 0;

  /// Registers memory; the peer may read it where `readable`, and never writes it. Throws
  /// `unavailable` with the reason, for example the limit of locked memory. Any thread may call it.
  virtual std::unique_ptr<Region> add(std::byte* memory, std::size_t bytes, bool readable) = 0;

  /// Post a request: to send to the peer's oldest request to receive; to receive; to read memory of
  /// the peer. Return false where the queue pair has failed.
  [[nodiscard]] virtual bool send(std::uint32_t id, const Piece& piece) noexcept = 0;
  [[nodiscard]] virtual bool receive(std::uint32_t id, const Piece& piece) noexcept = 0;
  [[nodiscard]] virtual bool read(std::uint32_t id, const Piece& to, std::uint64_t address,
                                  std::uint32_t remote_key) noexcept = 0;

  /// Takes finished requests, and returns how many. Where the device cannot tell, there is one that
  /// says `nothing`, with the reason.
  virtual std::size_t poll(std::span<Completion> completions) noexcept = 0;
  /// Makes the device's event_fd() readable when the next request finishes, once. Requests that
  /// have finished before are not announced: the caller polls afterwards.
  virtual void arm() noexcept = 0;
  /// Makes all requests under way fail.
  virtual void stop() noexcept = 0;
  /// Takes back a request to read that the device has not begun to carry out; it does not complete
  /// then. Returns false where the device cannot, or where it has begun.
  virtual bool take_back_read(std::uint32_t id) noexcept {
    static_cast<void>(id);
    return false;
  }
  /// Returns whether all sends that have completed are at the peer, for which the device has to be
  /// asked where it completes them earlier. The first call asks, and nothing is sent afterwards.
  virtual bool is_flushed() noexcept { return true; }
  /// Returns whether requests complete only while the peer's process runs, not by its device alone.
  virtual bool needs_peer_process() const noexcept { return false; }
};

/// The numbers of requests of each kind that a queue pair has room for.
struct QueueLimits {
  std::uint32_t sends = 0, receives = 0, reads = 0;
};

/// Represents a device whose queue pairs share one descriptor for events. Thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  /// Returns the name by which messages speak of it, as "RDMA".
  virtual const char* name() const noexcept = 0;
  /// Returns the name of the port over which its queue pairs go, as "mlx5_0/1".
  virtual std::string port() const { return name(); }
  /// Returns whether the port is up, as far as is known. It takes a system call.
  virtual bool is_up() const noexcept { return true; }
  /// Returns a new queue pair, which ends before the device does. `owner` is what take_events()
  /// returns for it. Throws `unavailable`.
  virtual std::unique_ptr<QueuePair> make(const QueueLimits& limits, void* owner) = 0;
  virtual int event_fd() const noexcept = 0;
  /// Adds the owners of the queue pairs that have events to `owners`.
  virtual void take_events(std::vector<void*>& owners) = 0;
};

}  // namespace tutti::qp
