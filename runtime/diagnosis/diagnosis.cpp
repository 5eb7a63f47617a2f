#include "runtime/diagnosis/diagnosis.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <vector>

#include <fmt/format.h>

#include "common/text.h"
#include "runtime/call.h"
#include "runtime/own_algorithms.h"

namespace tutti {
namespace {

constexpr std::string_view kCallAlikeAdvice =
    "Make every rank call the same operations in the same order";
constexpr std::string_view kChooseAlikeAdvice =
    "Give every rank the same algorithms: files of schedules (TUTTI_SCHEDULES), algorithms of the "
    "program's own, Config::select and the options of the call";

std::string heading(const Situation& now) {
  return fmt::format("rank {} of {}: operation #{} {}", now.rank, now.size, now.number,
                     describe(now.call, now.reduction));
}

// Returns the operation number near `now` whose low 32 bits are `truncated`, which a header holds.
std::uint64_t whole_number(std::uint64_t now, std::uint32_t truncated) {
  return now + static_cast<std::uint64_t>(static_cast<std::int64_t>(
                   static_cast<std::int32_t>(truncated - static_cast<std::uint32_t>(now))));
}

std::string what_it_called(const Situation& now, const StatusPage* status_page,
                           std::uint64_t number) {
  const auto call = status_page != nullptr ? status_page->call(number) : std::nullopt;
  return call ? fmt::format("operation #{} {}", number, describe(*call, now.reduction))
              : fmt::format("operation #{} (its arguments are no longer on record)", number);
}

// Returns the end of a message that has described both calls: differences that describe() does not
// show, and what to do.
std::string apart(const CallSignature& here, const CallSignature& there) {
  CallSignature same = there;
  same.algorithm = here.algorithm;
  if (same != here || there == here) return fmt::format(". {}", kCallAlikeAdvice);
  if ((there.algorithm & here.algorithm & kOwnAlgorithm) != 0)
    return fmt::format(
        " by an algorithm of the program's own that has another name, or plans "
        "otherwise, than this rank's. {}",
        kChooseAlikeAdvice);
  return fmt::format(" by {}, where this rank uses {}. {}", describe_algorithm(there.algorithm),
                     describe_algorithm(here.algorithm), kChooseAlikeAdvice);
}

std::string where_it_is(const Situation& now, const StatusPage* status_page, std::uint64_t number) {
  if (status_page == nullptr) return "does not answer";
  const std::uint64_t entered = status_page->entered.load(std::memory_order_acquire);
  if (entered > number)
    return status_page->completed.load(std::memory_order_acquire) > number ? "has completed it"
                                                                           : "is in it";
  if (entered == 0) return "has not called it (nor anything before)";
  return fmt::format("has not called it (its last call is {})",
                     what_it_called(now, status_page, entered - 1));
}

// Collects what is said of the ranks, and names those together of which the same is said.
class Statements {
 public:
  void add(int rank, const std::string& what) {
    auto found = std::find_if(said_.begin(), said_.end(),
                              [&](const Statement& statement) { return statement.what == what; });
    if (found == said_.end()) found = said_.insert(found, {what, {}});
    found->ranks.push_back(rank);
  }
  std::string text(std::string_view before_each) const {
    std::string text;
    for (const Statement& statement : said_)
      text += fmt::format("{}{}{} {}", before_each, show_ranks(statement.ranks),
                          statement.ranks.size() == 1 ? "" : ": each", statement.what);
    return text;
  }

 private:
  struct Statement {
    std::string what;
    std::vector<int> ranks;
  };
  std::vector<Statement> said_;
};

// Returns the error if the two ends of a block gave it different lengths in calls that agree
// otherwise. The fingerprint of each message is that of the call plus the bytes of its block.
std::optional<Error> diagnose_length(const Situation& now, const MismatchedMessage& message) {
  assert(message.peer >= 0 && message.peer < now.size && message.peer != now.rank);
  if (now.call.lengths != kPairLengths || message.found.operation != message.expected.operation)
    return std::nullopt;
  const StatusPage* status_page = now.transport.status_page(message.peer);
  const auto theirs = status_page != nullptr ? status_page->call(now.number) : std::nullopt;
  if (!theirs || *theirs != now.call) return std::nullopt;
  const auto elements = [&](const Header& header) {
    return (header.fingerprint - fingerprint(now.call)) / size_of(now.call.type);
  };
  return Error(ErrorKind::mismatch,
               fmt::format("{}: rank {} sends {} elements to rank {}, which expects {} of it. "
                           "Give each block the same count on the rank that sends it and on the "
                           "rank that gets it",
                           heading(now), message.peer, elements(message.found), now.rank,
                           elements(message.expected)));
}

}  // namespace

std::string describe_corrupt(int peer, std::string_view why) {
  return fmt::format(
      "what comes from rank {} is not what it sent: {}. Do not use the results; look at the cards, "
      "the cables and the memory of the two machines, and start the job again",
      peer, why);
}

std::string reported_failure(int peer, const StatusPage& status_page) {
  constexpr std::string_view kReports = " has failed and reports: ";
  const std::string_view text = status_page.failure_text();
  const std::size_t quoted = text.rfind(kReports);
  const std::size_t origin = quoted == text.npos ? quoted : text.rfind("rank ", quoted);
  if (origin != text.npos) return std::string(text.substr(origin));
  return fmt::format("rank {}{}{}", peer, kReports, text);
}

std::optional<Error> diagnose_state(std::string_view heading, Transport& transport, int peer,
                                    const PeerStatus& status) {
  switch (status.state) {
    case PeerStatus::State::alive:
    case PeerStatus::State::closed: break;
    case PeerStatus::State::failed:
      if (const StatusPage* status_page = transport.status_page(peer))
        return Error(
            static_cast<ErrorKind>(status_page->failure_kind.load(std::memory_order_relaxed)),
            fmt::format("{}: {}", heading, reported_failure(peer, *status_page)));
      break;
    case PeerStatus::State::lost:
      return Error(
          ErrorKind::peer_lost,
          fmt::format(
              "{}: rank {} is lost: {}. Restart the job, or make a new communicator without it",
              heading, peer, status.why));
    case PeerStatus::State::corrupt:
      return Error(ErrorKind::corrupt,
                   fmt::format("{}: {}", heading, describe_corrupt(peer, status.why)));
    case PeerStatus::State::no_memory:
      return Error(
          ErrorKind::unavailable,
          fmt::format("{}: what rank {} sends cannot be received: {}", heading, peer, status.why));
  }
  return std::nullopt;
}

Error caught_error(std::string_view heading) {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(
        ErrorKind::unavailable,
        fmt::format("{}: there is no memory for it; raise the limit on memory (ulimit -v), "
                    "or send less at a time",
                    heading));
  }
}

std::optional<Error> diagnose_failed(Transport& transport, int rank, int size,
                                     std::string_view what) {
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const PeerStatus status = transport.status(peer);
    if (status.state != PeerStatus::State::failed) continue;
    const std::string heading = fmt::format("rank {} of {}{}", rank, size, what);
    if (auto error = diagnose_state(heading, transport, peer, status)) return error;
  }
  return std::nullopt;
}

std::optional<Error> diagnose_peers(const Situation& now) {
  assert(now.rank >= 0 && now.rank < now.size);
  for (int peer = 0; peer < now.size; ++peer) {
    if (peer == now.rank) continue;
    const PeerStatus status = now.transport.status(peer);
    const StatusPage* status_page = now.transport.status_page(peer);
    if (status_page != nullptr) {
      const auto theirs = status_page->call(now.number);
      if (theirs && *theirs != now.call)
        return Error(
            ErrorKind::mismatch,
            fmt::format("{}, but rank {} called {}{}", heading(now), peer,
                        what_it_called(now, status_page, now.number), apart(now.call, *theirs)));
      if (status_page->completed.load(std::memory_order_acquire) > now.number &&
          status.state != PeerStatus::State::corrupt &&
          status.state != PeerStatus::State::no_memory)
        continue;  // the peer has completed the operation
    }
    switch (status.state) {
      case PeerStatus::State::alive: break;
      case PeerStatus::State::closed:
        return Error(ErrorKind::peer_lost,
                     fmt::format("{}: rank {} has closed its communicator and {}", heading(now),
                                 peer, where_it_is(now, status_page, now.number)));
      case PeerStatus::State::failed:
      case PeerStatus::State::lost:
      case PeerStatus::State::corrupt:
      case PeerStatus::State::no_memory:
        if (auto error = diagnose_state(heading(now), now.transport, peer, status)) return error;
    }
  }
  return std::nullopt;
}

// A copy of the page may be older than the message; then the page shows that the peer has not
// entered the message's operation.
bool can_explain(const Situation& now, const MismatchedMessage& message) {
  if (message.found.operation == message.expected.operation &&
      message.found.fingerprint == message.expected.fingerprint)
    return true;
  const StatusPage* status_page = now.transport.status_page(message.peer);
  if (status_page == nullptr) return false;
  const std::uint64_t number = whole_number(now.number, message.found.operation);
  const std::uint64_t entered = status_page->entered.load(std::memory_order_acquire);
  // A copy that another thread writes just now may show that the call was entered, and not the
  // call.
  return entered > number &&
         (status_page->call(number).has_value() || entered > number + StatusPage::kCalls);
}

Error diagnose_message(const Situation& now, const MismatchedMessage& message) {
  if (message.found.operation == message.expected.operation &&
      message.found.fingerprint == message.expected.fingerprint)
    return Error(
        ErrorKind::corrupt,
        fmt::format("{}: a message of rank {} has {} bytes where {} were expected", heading(now),
                    message.peer, message.found.length, message.expected.length));
  if (const auto error = diagnose_length(now, message)) return *error;
  // The peer may have completed a different call under this number already, and have sent the
  // message of a later call.
  const StatusPage* status_page = now.transport.status_page(message.peer);
  const auto instead = status_page != nullptr ? status_page->call(now.number) : std::nullopt;
  const std::uint64_t theirs = instead && *instead != now.call
                                   ? now.number
                                   : whole_number(now.number, message.found.operation);
  const std::string here =
      theirs == now.number
          ? apart(now.call, instead ? *instead : now.call)
          : fmt::format(", which here was {}. {}",
                        what_it_called(now, &now.transport.own_status_page(), theirs),
                        kCallAlikeAdvice);
  return Error(ErrorKind::mismatch,
               fmt::format("{}, but rank {} called {}{}", heading(now), message.peer,
                           what_it_called(now, status_page, theirs), here));
}

Error diagnose_reduction(const Situation& now, const ReductionThrew& thrown) {
  return Error(ErrorKind::usage,
               fmt::format("{}: the reduction's function threw: {}", heading(now), thrown.what));
}

void Inquiry::begin(Reason reason, std::uint64_t operation, int rank, int size, TimePoint until) {
  asking_ = true;
  reason_ = reason;
  operation_ = operation;
  until_ = until;
  silent_.clear();
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank) silent_.push_back(peer);
  assert(static_cast<int>(silent_.size()) == size - 1);
}

bool Inquiry::look(Transport& transport, TimePoint now) {
  assert(asking_);
  std::erase_if(silent_, [&](int peer) { return transport.status_page(peer) != nullptr; });
  return all_answered() || now >= until_;
}

Reporter reporter_of_stall(const Situation& now) {
  Reporter reporter = Reporter::self;
  for (int peer = 0; peer < now.size; ++peer) {
    const StatusPage* status_page =
        peer == now.rank ? nullptr : now.transport.recent_status_page(peer);
    if (status_page == nullptr) continue;
    if (status_page->reported.load(std::memory_order_acquire) > now.number)
      return Reporter::reported;
    if (peer < now.rank && status_page->entered.load(std::memory_order_acquire) > now.number &&
        status_page->completed.load(std::memory_order_acquire) <= now.number)
      reporter = Reporter::lower;
  }
  return reporter;
}

std::string describe_stall(const Situation& now, Nanoseconds age) {
  std::string text = fmt::format("{} has been under way for {:.1f} s", heading(now),
                                 std::chrono::duration<double>(age).count());
  Statements statements;
  for (int peer = 0; peer < now.size; ++peer) {
    const StatusPage* status_page = now.transport.recent_status_page(peer);
    std::string where = where_it_is(now, status_page, now.number);
    const int awaited = status_page == nullptr ? -1 : status_page->waits_for(now.number);
    if (awaited >= 0 && status_page->completed.load(std::memory_order_acquire) <= now.number)
      where += fmt::format(" and waits for rank {}", awaited);
    statements.add(peer, where);
  }
  return text + statements.text("\n  ");
}

std::string_view advice_at_deadline(Nanoseconds limit, Nanoseconds configured) noexcept {
  return limit == configured ? "Find out what keeps it, or raise TUTTI_TIMEOUT_MS"
                             : "Find out what keeps it, or raise the timeout that the program gave "
                               "the call";
}

Error diagnose_deadline(const Situation& now, const Engine& engine, Nanoseconds limit,
                        Nanoseconds configured) {
  std::string text =
      fmt::format("{} did not end within {} ms", heading(now),
                  std::chrono::duration_cast<std::chrono::milliseconds>(limit).count());
  Statements statements;
  for (int peer = 0; peer < now.size; ++peer) {
    if (peer == now.rank) continue;
    const std::string where = where_it_is(now, now.transport.recent_status_page(peer), now.number);
    if (where != "is in it" && where != "has completed it") statements.add(peer, where);
  }
  text += statements.text("; ");
  std::string awaited;
  for (int peer = engine.awaited(-1); peer >= 0; peer = engine.awaited(peer))
    awaited += fmt::format("{}{}", awaited.empty() ? "; this rank waits for rank " : ", ", peer);
  return Error(ErrorKind::timeout,
               fmt::format("{}{}. {}", text, awaited, advice_at_deadline(limit, configured)));
}

}  // namespace tutti
