#include "rendezvous/store/join.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <tutti/error.hpp>

#include "common/text.h"
#include "net/local_socket.h"
#include "rendezvous/store/protocol.h"

namespace tutti::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstPause{1};
// If the last attempt had less time than this, the error reports the obstacle of the previous one,
// since the last may have failed for lack of time only.
constexpr milliseconds kShort{250};
constexpr seconds kReportAfter{5}, kReportEvery{60};

// The attempts of one rank to join one store.
struct Applicant {
  Route& route;
  const JobAddress& job;
  const int rank;
  const Patience& patience;
  const Applying applying;
  std::string obstacle = {};  // why it has not succeeded so far
  bool answered = false;      // The server has told it to try later.

  std::optional<Joined> try_once();
  std::optional<Answer> await_answer(Joined& joined);
  [[noreturn]] void refused(const Answer& answer, const std::string& server) const;
};

std::optional<Joined> Applicant::try_once() {
  auto joined = route.reach(patience, obstacle);
  if (!joined) return std::nullopt;
  Greeting greeting;
  greeting.rank = static_cast<std::uint32_t>(rank);
  greeting.size = static_cast<std::uint32_t>(job.size);
  greeting.job = job.job_hash();
  greeting.flags = applying.flags;
  greeting.client = applying.client;
  joined->connection.queue(bytes_of(greeting));
  static_cast<void>(joined->connection.flush());  // if it fails, await_answer() fails, too
  const auto answer = await_answer(*joined);
  if (!answer) return std::nullopt;
  if (answer->verdict == Verdict::welcome) {
    joined->size = static_cast<int>(answer->size);
    return joined;
  }
  answered = true;
  if (answer->verdict != Verdict::too_late) refused(*answer, joined->server);
  obstacle = joined->server + " still holds the store of an earlier communicator";
  return std::nullopt;
}

std::optional<Answer> Applicant::await_answer(Joined& joined) {
  net::Connection& connection = joined.connection;
  for (;;) {
    if (auto answer = fixed_part<Answer>(connection.received())) {
      connection.consume(sizeof *answer);
      return answer;
    }
    if (!net::await_events(connection.fd(), POLLIN, patience)) {
      obstacle = joined.server + " does not answer";
      return std::nullopt;
    }
    if (!connection.receive()) {
      obstacle = joined.server + " closed the connection";
      return std::nullopt;
    }
  }
}

void Applicant::refused(const Answer& answer, const std::string& server) const {
  assert(answer.verdict != Verdict::welcome && answer.verdict != Verdict::too_late);
  const std::string who =
      fmt::format("{}: the store of {} at {}", describe_rank(rank), server, route.place());
  if (answer.magic != kStoreMagic)
    throw Error(ErrorKind::unavailable, fmt::format("{} is not tutti's; choose another port", who));
  std::string why;
  switch (answer.verdict) {
    case Verdict::other_version:
      why = fmt::format(
          "speaks version {} of the protocol and this rank {}; run the same build of "
          "tutti on all ranks",
          answer.version, kStoreVersion);
      break;
    case Verdict::other_job:
      why = fmt::format(
          "belongs to {}; give each job a port of its own",
          job.job.empty() ? "another job" : "a job of another name than " + shown(job.job));
      break;
    case Verdict::other_size:
      why = fmt::format(
          "belongs to a job of {} ranks, but this rank was started with WORLD_SIZE "
          "{}; give each job a port of its own and its ranks one WORLD_SIZE",
          answer.size, job.size);
      break;
    case Verdict::rank_taken:
      why = fmt::format(
          "has {} as rank {} already, and process {} wants to be it too; give every "
          "process a RANK of its own",
          net::PeerProcess{answer.pid, 0}.describe(), rank, getpid());
      break;
    case Verdict::parted:
      throw Error(
          ErrorKind::peer_lost,
          "the store's server has parted with this process: it had no memory for it, or the "
          "connection has failed");
    default: why = "gave an answer that this build does not know; run one build on all ranks";
  }
  throw Error(ErrorKind::mismatch, fmt::format("{} {}", who, why));
}

}  // namespace

std::optional<Joined> try_to_join(Route& route, const JobAddress& job, int rank,
                                  const Applying& applying, const Patience& patience,
                                  std::string& obstacle, bool& answered) {
  Applicant applicant{route, job, rank, patience, applying};
  auto joined = applicant.try_once();
  obstacle = applicant.obstacle;
  answered = applicant.answered;
  return joined;
}

Joined join_store(Route& route, const JobAddress& job, int rank, const Patience& patience, Log& log,
                  const Applying& applying) {
  assert((0 <= rank && rank < job.size) || rank >= kFirstNewcomer);
  Applicant applicant{route, job, rank, patience, applying};
  const Store::Deadline deadline = patience.deadline;
  auto report_at = steady_clock::now() + kReportAfter;
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, route.longest_pause())) {
    const auto began = steady_clock::now();
    const std::string before = applicant.obstacle;
    if (auto joined = applicant.try_once()) return std::move(*joined);
    const auto now = steady_clock::now();
    if (patience.is_given_up())
      throw Error(ErrorKind::peer_lost,
                  fmt::format("{} has given up joining the store at {} ({})", describe_rank(rank),
                              route.place(), applicant.obstacle));
    if (now >= deadline) {
      if (deadline - began < kShort && !before.empty()) applicant.obstacle = before;
      break;
    }
    if (now >= report_at) {
      log.write(LogLevel::warn, "{} waits for the store at {}: {}; it goes on trying for {} s",
                describe_rank(rank), route.place(), applicant.obstacle,
                std::chrono::ceil<seconds>(deadline - now).count());
      report_at = now + kReportEvery;
    }
    std::this_thread::sleep_until(std::min(deadline, now + pause));
  }
  throw Error(ErrorKind::timeout,
              fmt::format("{} could not join the store at {} before the deadline ({}); {}",
                          describe_rank(rank), route.place(), applicant.obstacle, route.advice()));
}

}  // namespace tutti::rendezvous
