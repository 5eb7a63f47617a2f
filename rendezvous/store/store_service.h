// What a store's server does with requests, without sockets: keys, and who waits for which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "rendezvous/store/key_table.h"
#include "rendezvous/store/protocol.h"

namespace tutti::rendezvous {

/// One thread at a time.
class StoreService {
 public:
  /// A guest that waits for more keys than this at once is refused: it has that many threads in
  /// get(), or has lost count.
  static constexpr std::size_t kMaxWaitsOfAGuest = 256;

  /// Takes a reply for `guest`; called from handle(). Must not call the service.
  using Send = std::function<void(int guest, const Reply&, std::string_view bytes)>;

  explicit StoreService(Send send) : send_(std::move(send)) {}

  /// Whether a request is one that a client of this version sends: checked before its key and value
  /// are read.
  static bool is_sane(const Request& request) noexcept;

  /// Handles the requests that stand whole at the start of `input`, and takes them from it. False:
  /// what follows is no request of this protocol.
  bool take(int guest, std::string_view& input);

  void handle(int guest, const Request& request, std::string_view key, std::string_view value);

  /// From now on nobody waits: who does, or is about to, gets a `mismatch` with this text.
  void refuse_waits(std::string_view why);

  /// Forgets all that `guest` waits for.
  void leave(int guest);

  std::size_t waits() const noexcept { return waiting_.size(); }

 private:
  struct Waiting {
    int guest;
    std::uint64_t id;
    Verb verb;
  };

  void await(int guest, const Request& request, std::string_view key);
  void answer_waiting(std::string_view key);
  void reply(int guest, std::uint64_t id, std::string_view bytes);
  void refuse(int guest, std::uint64_t id, Status how, std::string_view text);
  template <typename Unwanted>
  void drop(Unwanted unwanted);

  const Send send_;
  KeyTable table_;
  std::string why_no_waits_;                                  // empty: they are
  std::multimap<std::string, Waiting, std::less<>> waiting_;  // by key, in order of arrival
  std::map<int, std::size_t> waits_of_;                       // by guest
};

}  // namespace tutti::rendezvous
