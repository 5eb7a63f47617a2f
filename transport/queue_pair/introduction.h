// Connects the queue pairs of two ranks, by notes over their authenticated control connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "common/clock.h"
#include "net/stream.h"
#include "transport/context.h"
#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/frame.h"

namespace tutti::qp {

/// Begins what the two ends tell each other, one note for each step. A text of `text_bytes`
/// follows: the address, or the reason.
struct Note {
  static constexpr std::uint32_t kMagic = 0x72696170;  // "pair"

  enum class Step : std::uint16_t {
    address,    ///< The address of the queue pair.
    connected,  ///< This end's queue pair is connected, and has asked to receive.
    heard       ///< The peer's probe has arrived.
  };
  std::uint32_t magic = kMagic;
  Step step = Step::address;
  std::uint16_t failed = 0;  ///< Not 0 where the step has failed; `text` says why.
  std::uint32_t slot_bytes = kSlotBytes, slots = kReceiveSlots;
  std::uint32_t text_bytes = 0;
};
static_assert(sizeof(Note) == 20 && std::has_unique_object_representations_v<Note>);

/// Represents one end of it, as a state machine. Both ends come to the same result, unless the
/// control connection ends.
class Introduction {
 public:
  /// Begins with a connection, or with the reason why this rank can make none.
  Introduction(std::unique_ptr<Connection> connection, std::string why_none, net::Stream control);

  /// Does what can be done at this time. Throws `peer_lost` where the control connection has ended,
  /// and `mismatch` where the other end runs another version.
  void advance(TimePoint now);
  bool is_done() const noexcept { return done_; }
  /// Returns why the two are not connected, once it is done; empty if they are.
  const std::string& why_not() const noexcept { return why_not_; }
  int fd() const noexcept { return control_.fd(); }
  /// Returns whether it waits for the queue pair, not for the control connection.
  bool is_probing() const noexcept { return probing_until_.has_value(); }
  /// Returns whether the peer waits for work of this process, although this end waits for nothing
  /// but the control connection.
  bool helps_peer() const noexcept {
    return !done_ && next_ != Note::Step::address && connection_ != nullptr &&
           connection_->queue_pair().needs_peer_process();
  }

  std::unique_ptr<Connection> take_connection() { return std::move(connection_); }
  net::Stream take_control() { return std::move(control_); }

 private:
  void say(Note::Step step, const std::string& text, bool failed);
  struct Said {
    Note note;
    std::string text;
  };
  bool read_until(std::size_t bytes);
  std::optional<Said> read();
  void take(const Said& said, TimePoint now);
  void look_for_probe(TimePoint now);

  std::unique_ptr<Connection> connection_;
  std::string why_not_;
  net::Stream control_;
  std::array<char, sizeof(Note) + kMostAddressBytes> bytes_{};
  std::size_t there_ = 0;
  Note::Step next_ = Note::Step::address;  // the step of the note that is to come
  std::optional<TimePoint> probing_until_;
  bool done_ = false;
};

/// Advances all introductions, indexed by rank and empty where there is no peer, until they are
/// done. Throws `timeout` naming the ranks that do not answer, and what advance() throws, with the
/// rank.
void introduce(std::vector<std::optional<Introduction>>& peers, const TransportContext& context,
               TimePoint deadline);

}  // namespace tutti::qp
