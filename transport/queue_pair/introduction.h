// Connects the first queue pairs of two ranks, by notes over their authenticated control
// connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "net/stream.h"
#include "transport/context.h"
#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/control.h"

namespace tutti::qp {

/// Represents one end of an introduction, as a state machine. Both ends come to the same result,
/// unless the control connection ends.
class Introduction {
 public:
  /// Begins with a connection, or with the reason why this rank can make none. A connection without
  /// a path asks the peer to make none before it is needed.
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

  /// Returns the connection to a peer of that rank, once it is done. `leads` is what
  /// Connection::add_control() says.
  std::unique_ptr<Connection> take_connection(int rank, bool leads);

 private:
  void say(Note::Step step, const std::string& text, bool failed);
  std::optional<Control::Said> read();
  void take(const Control::Said& said, TimePoint now);
  void look_for_probe(TimePoint now);

  std::unique_ptr<Connection> connection_;
  std::string why_not_;
  Control control_;
  std::uint32_t peer_ports_ = 1;
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
