#include "runtime/membership/newcomer.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/fd.h"
#include "common/text.h"
#include "rendezvous/decision.h"
#include "rendezvous/host.h"
#include "rendezvous/launch/launch_environment.h"
#include "runtime/call.h"
#include "runtime/membership/membership.h"
#include "runtime/membership/pauses.h"
#include "runtime/membership/setup.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kNumbers = "tutti/newcomers";

std::string key(std::int64_t newcomer, std::string_view what) {
  return fmt::format("tutti/newcomer/{}/{}", newcomer, what);
}

// The values of a newcomer's state, which is only added to. One that does not wait any more has
// been called or has gone.
constexpr std::int64_t kWaits = 1;

// Returns when the process started, in ticks since the machine did: another process may get its
// number. Returns an empty text where that is not known.
std::string start_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string stat((std::istreambuf_iterator<char>(file)), {}), word;
  std::istringstream words(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  for (int field = 3; field <= 22 && words >> word;) ++field;  // see proc(5)
  return words.fail() ? "" : word;
}

/// Identifies a process, as far as others of its machine can find it; containers may have numbers
/// for processes of their own.
struct ProcessName {
  std::string space;  // empty if it is not known
  pid_t pid = 0;
  std::string start;

  bool has_ended() const {
    const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!process) return errno == ESRCH;
    pollfd ended{process.get(), POLLIN, 0};
    const std::string now = start_of(pid);
    return poll(&ended, 1, 0) > 0 || (!now.empty() && now != start);
  }
};

ProcessName this_process() {
  char space[64] = {};
  if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) return {};
  return {fmt::format("{}/{}", host_identity(), space), getpid(), start_of(getpid())};
}

std::string to_text(const ProcessName& process) {
  return fmt::format("{} {} {}", process.pid, process.start, process.space);
}

ProcessName parse_process(const std::string& text) {
  ProcessName process;
  std::istringstream words(text);
  words >> process.pid >> process.start >> process.space;
  return words.fail() ? ProcessName() : process;
}

std::string to_text(const CalledTo& place) {
  return fmt::format("{} {} {} {} {} {}", place.name, place.round, place.rank, place.size,
                     place.ranks, place.to_join);
}

CalledTo parse(const std::string& text) {
  CalledTo place;
  std::istringstream words(text);
  words >> place.name >> place.round >> place.rank >> place.size >> place.ranks >> place.to_join;
  const bool sane = !words.fail() && place.ranks >= 1 && place.rank >= 0 &&
                    place.rank < place.size && place.ranks <= kMaxRanks &&
                    place.size <= kMaxRanks && place.to_join >= 0 &&
                    is_timeout(milliseconds(place.to_join));
  if (!sane)
    throw Error(ErrorKind::corrupt,
                fmt::format("the store calls a newcomer to {}, which cannot be", shown(text)));
  return place;
}

Store::Deadline store_grace() { return std::chrono::steady_clock::now() + kStoreGrace; }

// Has it decided that a newcomer is called by `own`; returns the call that has been decided.
// Several communicators may call the same newcomer at once.
std::string decide_call(Store& store, std::int64_t newcomer, const std::string& own,
                        Store::Deadline deadline) {
  Decision decision(store, key(newcomer, "call"));
  for (;;) {
    if (auto decided = decision.propose(own, deadline)) return *std::move(decided);
    if (std::chrono::steady_clock::now() >= deadline)
      throw Error(
          ErrorKind::timeout,
          fmt::format("others were about to call newcomer {} until the deadline", newcomer));
    std::this_thread::sleep_for(kFirstPause);
  }
}

bool any_has_ended(const CommunicatorParts& parts) {
  const std::vector<bool> ended = ended_ranks(parts);
  return std::find(ended.begin(), ended.end(), true) != ended.end();
}

// Waits until it is decided whether the round counts. `joined` has the parts of the new
// communicator, or is null where this process has not joined it.
bool await_verdict(Round& round, int size, const CommunicatorParts* joined) {
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const auto made =
        newcomers_verdict(round, size, joined != nullptr, std::chrono::steady_clock::now(),
                          [joined] { return any_has_ended(*joined); });
    if (made) return *made;
    std::this_thread::sleep_for(pause);
  }
}

// Returns the parts of the new communicator, or none where the round does not count and another one
// may.
std::optional<CommunicatorParts> join_at(const CalledTo& place, const std::shared_ptr<Store>& store,
                                         const Config& config, const Secret& secret) {
  const TimePoint until = std::chrono::steady_clock::now() + milliseconds(place.to_join);
  Round round(*store, place.round, place.ranks, until);
  const auto check = [&round] {
    if (round.verdict(std::chrono::steady_clock::now()))
      throw Error(ErrorKind::peer_lost, "the ranks of the job have given up");
  };
  std::optional<CommunicatorParts> parts;
  std::optional<Error> not_joined;
  try {
    bind_rank(place.rank, place.size, config);
    Process process{std::make_shared<Runtime>(config), nullptr};
    process.check = check;
    parts = join_named(std::make_shared<WatchedStore>(store, check), place.name, place.rank,
                       place.size, process, secret, until);
    parts->store = store;
    round.join(std::chrono::steady_clock::now());
  } catch (const Error& error) {
    not_joined = error;
  }
  const bool passing = !not_joined || not_joined->kind() == ErrorKind::peer_lost ||
                       not_joined->kind() == ErrorKind::timeout;
  bool made = false;
  try {
    made = await_verdict(round, place.size, not_joined ? nullptr : &*parts);
  } catch (const Error&) {
    // The ranks of the job may have ended by now, and its store with them. Nothing is made without
    // this process, which knows better why.
    if (passing) throw;
  }
  if (made && !not_joined) return parts;
  if (made || !passing) throw not_joined.value();
  return std::nullopt;
}

}  // namespace

Coming::Coming(const std::shared_ptr<Store>& store)
    : store_(store), number_(store->add(kNumbers, 1, store_grace())) {
  store_->set(key(number_, "process"), to_text(this_process()), store_grace());
  store_->add(key(number_, "state"), kWaits, store_grace());
}

Coming::~Coming() {
  if (called_) return;
  try {
    store_->add(key(number_, "state"), 1, store_grace());
  } catch (const std::exception&) {  // it is called in vain, which the next round mends
  }
}

CalledTo Coming::await_call(Store::Deadline deadline) {
  try {
    const std::string text = store_->get(key(number_, "place"), deadline);
    called_ = true;
    return parse(text);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::timeout) throw;
  }
  throw Error(ErrorKind::timeout,
              fmt::format("newcomer {} has waited in vain for the ranks of the job: they take "
                          "newcomers in when all of them call Communicator::grow(), and have "
                          "not called this one; let them, or raise TUTTI_STARTUP_TIMEOUT_MS",
                          number_));
}

std::optional<bool> newcomers_verdict(Round& round, int size, bool joined, TimePoint now,
                                      const std::function<bool()>& any_has_ended) {
  if (auto known = round.verdict(now)) return known;
  if (joined && round.all_joined(static_cast<std::size_t>(size), now))
    return round.conclude(true, now);
  if (joined && now < round.deadline() && !any_has_ended()) return std::nullopt;
  return round.conclude(false, now);
}

std::vector<std::int64_t> Newcomers::waiting(Store& store, Store::Deadline deadline) {
  for (const std::int64_t last = store.add(kNumbers, 0, deadline); seen_ < last;)
    may_wait_.push_back(++seen_);
  std::vector<std::int64_t> all, may_wait;
  for (const std::int64_t newcomer : may_wait_) {
    const std::int64_t state = store.add(key(newcomer, "state"), 0, deadline);
    if (state > kWaits || (state == kWaits && newcomer_has_ended(store, newcomer, deadline)))
      continue;
    may_wait.push_back(newcomer);
    if (state == kWaits) all.push_back(newcomer);  // else it has yet to say who it is
  }
  may_wait_ = std::move(may_wait);
  return all;
}

bool newcomer_has_ended(Store& store, std::int64_t newcomer, Store::Deadline deadline) {
  const ProcessName process = parse_process(store.get(key(newcomer, "process"), deadline));
  return !process.space.empty() && process.space == this_process().space && process.has_ended();
}

void call_newcomers(Store& store, const Regrouped& all, const std::string& round, int ranks,
                    milliseconds to_join, Store::Deadline deadline) {
  auto rank = static_cast<int>(all.members.size());
  for (const std::int64_t newcomer : all.newcomers) {
    const CalledTo place{all.name, round,          rank++, static_cast<int>(all.size()),
                         ranks,    to_join.count()};
    const std::string own = to_text(place), decided = decide_call(store, newcomer, own, deadline);
    // The same whoever writes it: one that decided may have ended before it did.
    store.set(key(newcomer, "place"), decided, deadline);
    store.add(key(newcomer, "state"), 1, deadline);
    if (decided != own)
      throw Error(ErrorKind::peer_lost,
                  fmt::format("another communicator has called newcomer {}", newcomer));
  }
}

CommunicatorParts join_as_newcomer(const std::shared_ptr<Store>& store, const Config& config,
                                   const Secret& secret, TimePoint deadline) {
  check_settings(config);
  if (store == nullptr)
    throw Error(ErrorKind::usage, "a newcomer needs the store of the job; this one is null");
  for (;;) {
    Coming coming(store);
    const CalledTo place = coming.await_call(deadline);
    if (auto parts = join_at(place, store, config, secret)) return *std::move(parts);
  }
}

}  // namespace tutti
