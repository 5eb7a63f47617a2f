#include "rendezvous/join.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <tutti/error.hpp>

#include "common/text.h"
#include "rendezvous/protocol.h"

namespace tutti::rendezvous {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstPause{1}, kLongestPause{50};

// One rank that wants to join one job.
struct Applicant {
  const JobAddress& job;
  const int rank;
  const Store::Deadline deadline;
  const uid_t server_uid;
  std::string obstacle;   // why it has not succeeded so far
  bool answered = false;  // a server was there, and did what `obstacle` says

  std::optional<Joined> try_once();
  std::optional<Answer> await_answer(Joined& joined);
  void met(std::string_view what, bool by_a_server);
  void check_server(const PeerProcess& server) const;
  [[noreturn]] void refused(const Answer& answer, const PeerProcess& server) const;
};

std::optional<Joined> Applicant::try_once() {
  Connecting connecting = connect_to(job.socket_name());
  if (!connecting.socket) {
    met(connecting.why_not, false);
    return std::nullopt;
  }
  Joined joined{Connection(std::move(connecting.socket)), {}};
  joined.server = peer_of(joined.connection.fd());
  check_server(joined.server);

  Greeting greeting;
  greeting.rank = static_cast<std::uint32_t>(rank);
  greeting.size = static_cast<std::uint32_t>(job.size);
  greeting.job = job.job_hash();
  joined.connection.queue(bytes_of(greeting));
  static_cast<void>(joined.connection.flush());  // where it fails, there is no answer either
  const auto answer = await_answer(joined);
  if (!answer) return std::nullopt;
  if (answer->verdict == Verdict::welcome) return joined;
  if (answer->verdict != Verdict::too_late) refused(*answer, joined.server);
  met(joined.server.describe() + " still holds the store of an earlier communicator", true);
  return std::nullopt;
}

void Applicant::met(std::string_view what, bool by_a_server) {
  obstacle = what;
  answered = by_a_server;
}

std::optional<Answer> Applicant::await_answer(Joined& joined) {
  Connection& connection = joined.connection;
  for (;;) {
    if (auto answer = fixed_part<Answer>(connection.received())) {
      connection.consume(sizeof *answer);
      return answer;
    }
    pollfd waited{connection.fd(), POLLIN, 0};
    if (poll(&waited, 1, poll_milliseconds(deadline)) == 0) {
      // The last attempt may have had no time: what an earlier one met says more.
      if (!answered) met(joined.server.describe() + " does not answer", false);
      return std::nullopt;
    }
    if (!connection.receive()) {
      met(joined.server.describe() + " closed the connection", true);
      return std::nullopt;
    }
  }
}

void Applicant::check_server(const PeerProcess& server) const {
  if (server.uid == server_uid) return;
  throw Error(ErrorKind::unavailable,
              fmt::format("rank {}: the store at MASTER_PORT {} is that of {} of user {}, and this "
                          "rank runs as user {}; choose another MASTER_PORT",
                          rank, job.port, server.describe(), server.uid, server_uid));
}

void Applicant::refused(const Answer& answer, const PeerProcess& server) const {
  const std::string who =
      fmt::format("rank {}: the store of {} at MASTER_PORT {}", rank, server.describe(), job.port);
  if (answer.magic != kStoreMagic)
    throw Error(ErrorKind::unavailable,
                fmt::format("{} is not tutti's; choose another MASTER_PORT", who));
  std::string why;
  switch (answer.verdict) {
    case Verdict::other_version:
      why = fmt::format(
          "speaks version {} of the protocol and this rank {}; run the same build of "
          "tutti on all ranks",
          answer.version, kStoreVersion);
      break;
    case Verdict::other_job:
      why = fmt::format("belongs to a job of another name than {}; give each job a port of its own",
                        shown(job.job));
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
          PeerProcess{answer.pid, 0}.describe(), rank, getpid());
      break;
    default: why = "gave an answer that this build does not know; run one build on all ranks";
  }
  throw Error(ErrorKind::mismatch, fmt::format("{} {}", who, why));
}

}  // namespace

Joined join_store(const JobAddress& job, int rank, Store::Deadline deadline, uid_t server_uid) {
  Applicant applicant{job, rank, deadline, server_uid, {}, false};
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    if (auto joined = applicant.try_once()) return std::move(*joined);
    if (steady_clock::now() >= deadline) break;
    std::this_thread::sleep_until(std::min(deadline, steady_clock::now() + pause));
  }
  throw Error(ErrorKind::timeout,
              fmt::format("rank {} could not join the store at MASTER_PORT {} before the deadline "
                          "({}); see whether rank 0 has started, as the same user and with the "
                          "same MASTER_PORT",
                          rank, job.port, applicant.obstacle));
}

}  // namespace tutti::rendezvous
