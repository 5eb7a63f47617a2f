// Handles the requests to a store's server, without sockets: the keys, and the requests that wait
// for one.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/key_table.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/replication.h"

namespace tutti::rendezvous {

/// The store's keys and waiting requests. A client is a client, identified by a number. The service
/// may be used by one thread at a time.
class StoreService {
 public:
  /// The most requests of one client that may wait at once. A client needs one for each of its
  /// threads in get(), so one that needs more is assumed to be faulty, and further requests are
  /// refused.
  static constexpr std::size_t kMaxWaitsOfAClient = 256;

  /// The callback with which the service sends a reply to `client`. It must not call the service,
  /// nor throw.
  using Send = std::function<void(int client, const Reply&, std::string_view bytes)>;

  /// Gets every change before the reply to the request that made it is sent. It must not call the
  /// service, nor throw.
  using Changed = std::function<void(const Change&)>;

  /// The most answers that are kept of one client. A client needs one for each of its threads.
  static constexpr std::size_t kMaxAnswersOfAClient = 256;
  /// The most keys that one client may have set when it has left.
  static constexpr std::size_t kMaxLeftByAClient = 2 * kMaxWaitsOfAClient;

  /// The text with Status::no_memory.
  static constexpr std::string_view kNoMemory =
      "the process that serves the store has no memory for this request";

  explicit StoreService(Send send, Changed changed = nullptr)
      : send_(std::move(send)), changed_(std::move(changed)) {
    assert(send_ != nullptr);
  }

  /// Identifies `client` by a number that it keeps when it goes to another server. A change that it
  /// requests a second time is made once, and gets the first answer. `flags` are those of its
  /// greeting.
  void enter(int client, std::uint64_t identity, std::uint32_t flags);
  /// The server itself sets a key.
  void set(std::string_view key, std::string_view value);
  /// Applies a change that another server has made.
  void apply(const Change& change);
  /// Calls `use` with the changes that make an empty store equal to this one.
  void copy(const Changed& use) const;

  /// Whether a request is valid in this version of the protocol. It is checked before the key and
  /// the value are read.
  static bool is_sane(const Request& request) noexcept;

  /// Returns whether there is room for one more reply to a client.
  using Room = std::function<bool()>;
  /// Handles the complete requests at the front of `input` and removes them from it, as long as
  /// there is room. Returns false if they are followed by something that is not a valid request.
  bool take(int client, std::string_view& input, const Room& room);

  /// Replies with Status::no_memory, and changes nothing, where there is no memory for it.
  void handle(int client, const Request& request, std::string_view key, std::string_view value);

  /// Replies `how` with this text to all waiting requests, and to all later ones that would wait.
  void refuse_waits(Status how, std::string_view why);

  /// Whether `client` has set a key or asked for one: it has got so far that others need not wait
  /// for it in vain.
  bool has_taken_part(int client) const { return participants_.contains(client); }
  /// Returns whether a server has parted with the client of this identity, so that it cannot come
  /// back. Only the last thousand are known.
  bool has_parted_with(std::uint64_t identity) const;
  /// Drops all waiting requests and the answers of `client`, sets the keys that it has asked for,
  /// and deletes those that it was the last to share. Where there is no memory for these it throws,
  /// and is to be called again. A client that has come back and requested nothing may come back
  /// again, and its answers are kept: it may have given up before it was answered.
  void leave(int client);

  std::size_t waits() const noexcept { return waiting_.size(); }
  /// Whether `client` is no rank yet, see Verb::be_rank.
  bool is_idle(int client) const { return idle_.contains(client); }

 private:
  struct Waiting {
    int client;
    std::uint64_t id;
    Verb verb;
    std::vector<std::string> unless;  // the keys of texts that end the wait
  };

  void change(int client, const Request& request, std::string_view key, std::string_view value);
  void keep(const Change& change);
  void await(int client, const Request& request, std::string_view key, std::string_view unless);
  void set_when_gone(int client, const Request& request, std::string_view key,
                     std::string_view value);
  void share(int client, std::string_view prefix, std::string_view sharers);
  void count_as_left(const std::string& prefix, std::int64_t sharers);
  void erase(std::string_view prefix) noexcept;
  void part_with(std::uint64_t identity);
  void answer_waiting(std::string_view key);
  void count_out(const Waiting& waiting);
  void end_waits_unless(std::string_view key, std::string_view text);
  void reply(int client, std::uint64_t id, std::string_view bytes);
  void refuse(int client, std::uint64_t id, Status how, std::string_view text);
  template <typename Unwanted>
  void drop(Unwanted unwanted);

  const Send send_;
  const Changed changed_;  // may be empty
  KeyTable table_;
  std::string why_no_waits_;      // the text of refuse_waits(); empty while requests may wait
  Status no_waits_ = Status::ok;  // the status with that text
  std::map<int, std::uint64_t> identities_;
  // By identity, and by the id of the request: the replies to changes that a client may repeat.
  std::map<std::uint64_t, std::map<std::uint64_t, std::string>> answers_;
  std::deque<std::uint64_t> parted_;  // see has_parted_with()
  std::set<int> participants_;        // see has_taken_part()
  std::set<int> idle_;                // see is_idle()
  std::set<int> returned_;  // those that have come with kReturns, and have requested nothing yet
  std::multimap<std::string, Waiting, std::less<>> waiting_;  // by key, in order of arrival
  std::map<int, std::size_t> waits_of_;  // the number of waiting requests of each client
  std::map<std::string, std::size_t, std::less<>> waits_unless_;  // those with each key in `unless`
  std::map<int, std::map<std::string, std::string, std::less<>>> when_gone_;  // of each client
  // Holds for each client, by prefix, the number of clients that share the keys.
  std::map<int, std::map<std::string, std::int64_t>> shared_;
};

}  // namespace tutti::rendezvous
