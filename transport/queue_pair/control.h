// Declares the notes that two ranks exchange over their authenticated control connection: how they
// connect queue pairs, which paths fail, and where no path is left, the frames themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "net/stream.h"
#include "transport/queue_pair/device.h"
#include "transport/queue_pair/frame.h"

namespace tutti::qp {

/// Begins what the two ends tell each other. A text of `text_bytes` follows: an address, a reason,
/// or a frame.
struct Note {
  static constexpr std::uint32_t kMagic = 0x72696170;  // "pair"

  enum class Step : std::uint16_t {
    address,    ///< The address of the queue pair.
    connected,  ///< This end's queue pair is connected, and has asked to receive.
    heard,      ///< The peer's probe has arrived.
    lost,       ///< This end uses the path no more.
    frame,      ///< A frame, where there is no path.
    wanted,     ///< The sender has a message, and the receiver, which leads, is to propose paths.
  };
  std::uint32_t magic = kMagic;
  Step step = Step::address;
  std::uint16_t failed = 0;  ///< Not 0 where the step has failed; `text` says why.
  std::uint32_t slot_bytes = kSlotBytes, slots = kReceiveSlots;
  std::uint32_t text_bytes = 0;
  /// The number of the path: in the first note 0 where none is to be made before it is needed.
  std::uint32_t path = 1;
  /// In the first note, the number of ports that the rank may use; in a later address, the number
  /// of the port that the receiver shall use.
  std::uint16_t port = 1;
  std::uint16_t paths = 0;  ///< The paths for which the rank is set, or 0 (TUTTI_RDMA_PATHS).
  /// In a note `lost`, this is the sequence number of the next frame; frames before it may come
  /// again.
  std::uint16_t sequence = 0;
  std::uint16_t zero = 0;
};
static_assert(sizeof(Note) == 32 && std::has_unique_object_representations_v<Note>);

/// Represents one end of a control connection. No function blocks. Used by one thread at a time.
class Control {
 public:
  explicit Control(net::Stream stream) : stream_(std::move(stream)) {}

  int fd() const noexcept { return stream_.fd(); }
  /// Sends a note with its text. What the socket does not take is kept until flush(). Throws
  /// std::bad_alloc.
  void say(Note note, std::string_view text);
  void flush() noexcept;
  /// The bytes that flush() has yet to send.
  std::size_t unwritten() const noexcept { return out_.size() - written_; }
  /// Returns whether the peer's kernel has all that was said.
  bool is_flushed() const noexcept;

  struct Said {
    Note note;
    std::string text;
  };
  /// Returns the next note, if it has arrived. Throws std::bad_alloc.
  std::optional<Said> read();
  enum class End : std::uint8_t {
    none,
    closed,    ///< The peer has closed it, or its process has ended.
    silent,    ///< The peer's machine does not answer any more.
    nonsense,  ///< What came is no note.
  };
  End end() const noexcept { return end_; }

 private:
  bool read_until(std::size_t bytes);

  net::Stream stream_;
  std::string out_;
  std::size_t written_ = 0;  // of out_
  std::vector<char> in_ = std::vector<char>(sizeof(Note));
  std::size_t there_ = 0;  // of in_
  End end_ = End::none;
};

/// Carries frames over a control connection: slower than any device, and where no other path is
/// left. The owner of both hands it the frames that arrive.
class ControlPair final : public QueuePair {
 public:
  explicit ControlPair(Control& control) : control_(control) {}

  std::string address() const override { return {}; }
  void connect(std::string_view) override {}
  ReadLimits reads() const noexcept override { return {}; }
  std::unique_ptr<Region> add(std::byte*, std::size_t, bool) override { return nullptr; }
  bool send(std::uint32_t id, const Piece& piece) noexcept override;
  bool receive(std::uint32_t id, const Piece& piece) noexcept override;
  bool read(std::uint32_t, const Piece&, std::uint64_t, std::uint32_t) noexcept override {
    return false;
  }
  std::size_t poll(std::span<Completion> completions) noexcept override;
  void arm() noexcept override {}  // The socket is watched all the time.
  void stop() noexcept override { receives_.clear(); }
  bool is_flushed() noexcept override { return control_.is_flushed(); }
  bool needs_peer_process() const noexcept override { return true; }

  /// Takes a frame. Returns false where the peer has no room for it.
  [[nodiscard]] bool take(std::string_view frame);

 private:
  struct Receive {
    std::uint32_t id = 0;
    Piece piece;
  };
  Control& control_;
  std::deque<Receive> receives_;
  std::deque<Completion> finished_;
};

}  // namespace tutti::qp
