#include "launch/supervisor.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "common/descriptors.h"
#include "net/local_socket.h"
#include "rendezvous/launch/job_address.h"

namespace tutti::tools {
namespace {

using namespace std::chrono_literals;

constexpr auto kProgressPeriod = 500ms;  // limits a progress bar to two lines a second
constexpr auto kTimeToDump = 5s;  // in which ranks notice a failure and write their last operations
constexpr auto kTimeToSucceed = 5s;  // between the end of a job's store and that of its ranks
constexpr int kTimeoutStatus = 124;  // the status that timeout(1) uses

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// Binds a free TCP port and holds it, so that no other job gets the same one meanwhile.
/// SO_REUSEADDR lets a program listen on MASTER_PORT itself all the same.
Fd hold_free_port(int& port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw_errno("cannot find a free port (choose one with --port)");
  port = ntohs(address.sin_port);
  return fd;
}

/// Returns whether a job of this user that another launcher has started uses the port, perhaps as
/// the name of its store alone.
bool names_a_store(int port) {
  JobAddress job;
  job.port = port;
  job.size = 1;
  return !net::connect_local(job.socket_name()).nobody_listens();
}

void remove_variable(std::vector<std::string>& environment, const std::string& name) {
  std::erase_if(environment, [&](const std::string& old) { return old.starts_with(name + "="); });
}

void set_variable(std::vector<std::string>& environment, const std::string& assignment) {
  remove_variable(environment, assignment.substr(0, assignment.find('=')));
  environment.push_back(assignment);
}

/// Makes the secret with which this job's ranks authenticate to each other, if the user has not
/// given one. It is passed in the environment, which only the job's user can read, and not on a
/// command line.
std::string make_secret_variable() {
  std::array<std::uint64_t, 4> words{};
  if (::getrandom(words.data(), sizeof words, 0) != static_cast<ssize_t>(sizeof words))
    throw_errno("cannot make the job's secret");
  std::string variable = "TUTTI_SECRET=";
  for (const std::uint64_t word : words) variable += fmt::format("{:016x}", word);
  return variable;
}

bool same_file(int a, int b) {
  struct stat x, y;
  return ::fstat(a, &x) == 0 && ::fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options, const sigset_t& mask, Fd guard)
    : options_(options),
      mask_(mask),
      guard_(std::move(guard)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  assert(options_.ranks >= 1 && !options_.command.empty());
  const sigset_t handled = handled_signals();
  signals_ = Fd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!epoll_ || !signals_) throw_errno("cannot watch over the ranks");
  watch(signals_.get(), Source::signal, 0, EPOLLIN);
  watch(guard_.get(), Source::guard, 0, EPOLLIN);

  outputs_.push_back(std::make_unique<Output>(Output{Sink(STDOUT_FILENO)}));
  if (!same_file(STDOUT_FILENO, STDERR_FILENO))
    outputs_.push_back(std::make_unique<Output>(Output{Sink(STDERR_FILENO)}));

  prepare_environment();
  ranks_.resize(static_cast<std::size_t>(options_.ranks) +
                static_cast<std::size_t>(options_.max_restarts));
}

/// Makes what the environments of all ranks have in common.
void Supervisor::prepare_environment() {
  for (char** variable = ::environ; *variable != nullptr; ++variable)
    environment_.emplace_back(*variable);
  // The job to which newcomers come has a secret already.
  if (!options_.newcomers && ::getenv("TUTTI_SECRET") == nullptr &&
      ::getenv("TUTTI_SECRET_FILE") == nullptr)
    environment_.push_back(make_secret_variable());
  for (const std::string& assignment : options_.environment) set_variable(environment_, assignment);
  // A rank of another launcher may have started this one.
  for (const char* const name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    remove_variable(environment_, name);
  if (options_.newcomers) return;
  int port = options_.port;
  while (port == 0 || (port_ && names_a_store(port))) port_ = hold_free_port(port);
  set_variable(environment_, "MASTER_ADDR=127.0.0.1");
  set_variable(environment_, fmt::format("MASTER_PORT={}", port));
}

int Supervisor::run() {
  if (options_.timeout > 0ms) timeout_at_ = Clock::now() + options_.timeout;
  const auto finish_by = timeout_at_;
  // A rank has three: standard output, standard error and the pidfd.
  allow_descriptors(3 * ranks_.size() + 64);
  for (int rank = 0; rank < options_.ranks && start(rank, rank); ++rank) {
  }
  const auto is_rank = [this](pid_t pid) {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [pid](const Rank& rank) { return rank.running && rank.pid == pid; });
  };
  while ((left_ = left_ && reap_orphans(is_rank))) {
    if (running() == 0) judge_newcomers();
    if (running() == 0 && !ending_) begin_ending();
    wait();
    on_deadlines();
    write_outputs();
  }
  judge_newcomers();
  finish_output(finish_by);
  return status_.value_or(succeeded_ ? 0 : first_failure_.value_or(0));
}

SpawnRequest Supervisor::request_for(const Rank& rank) const {
  SpawnRequest request{options_.command, environment_, mask_, false, options_.tag, {}};
  if (options_.prepare)
    request.prepare = [this, place = rank.place] { return options_.prepare(place); };
  if (!options_.newcomers)
    set_variable(request.environment, fmt::format("LOCAL_RANK={}", rank.place));
  if (!rank.newcomer) {
    set_variable(request.environment, fmt::format("RANK={}", rank.number));
    set_variable(request.environment, fmt::format("WORLD_SIZE={}", options_.ranks));
    set_variable(request.environment, fmt::format("LOCAL_WORLD_SIZE={}", options_.ranks));
  }
  // A terminal belongs to one process group, and the ranks are in process groups of their own.
  request.keep_stdin = rank.number == 0 && ::isatty(STDIN_FILENO) == 0;
  return request;
}

std::string Supervisor::name_of(const Rank& rank) {
  return fmt::format("{} {}", rank.newcomer ? "newcomer" : "rank", rank.number);
}

bool Supervisor::start(int number, int place) {
  const auto index = static_cast<std::size_t>(number);
  assert(index < ranks_.size() && 0 <= place && place < options_.ranks);
  Rank& rank = ranks_[index];
  rank.number = number;
  rank.place = place;
  rank.newcomer = options_.newcomers || number >= options_.ranks;
  Spawned spawned = spawn(request_for(rank));
  if (spawned.error != 0) {
    const bool missing = spawned.error == ENOENT;
    std::string reason = fmt::format("cannot start {}: '{}': {}", name_of(rank),
                                     options_.command[0], std::strerror(spawned.error));
    if (spawned.error == EMFILE) reason += " (raise `ulimit -n`)";
    if (spawned.error == EAGAIN) reason += " (raise `ulimit -u`)";
    fail(missing ? 127 : 126, reason);
    return false;
  }
  rank.pid = spawned.pid;
  rank.pidfd = std::move(spawned.pidfd);
  rank.running = true;
  watch(rank.pidfd.get(), Source::rank, index, EPOLLIN);
  if (!options_.tag) return true;
  rank.streams.push_back({std::move(spawned.out), outputs_.front().get(), LineTagger(number)});
  rank.streams.push_back({std::move(spawned.err), outputs_.back().get(), LineTagger(number)});
  for (std::size_t i = 0; i < 2; ++i)
    watch(rank.streams[i].fd.get(), Source::stream, 2 * index + i, EPOLLIN);
  return true;
}

void Supervisor::watch(int fd, Source source, std::size_t index, std::uint32_t events) {
  assert(fd >= 0 && index <= std::numeric_limits<std::uint32_t>::max());
  epoll_event event{};
  event.events = events;
  event.data.u64 = std::uint64_t{static_cast<std::uint32_t>(source)} << 32 | index;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("epoll_ctl");
}

void Supervisor::unwatch(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Supervisor::wait() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, next_timeout_ms());
  if (count < 0 && errno != EINTR) throw_errno("epoll_wait");
  // Events come in the order in which they became ready, so the first rank to fail is seen first.
  for (int i = 0; i < count; ++i) {
    const std::uint64_t key = events[i].data.u64;
    dispatch(Source{static_cast<std::uint32_t>(key >> 32)}, static_cast<std::uint32_t>(key));
  }
}

void Supervisor::dispatch(Source source, std::size_t index) {
  assert((source != Source::rank || index < ranks_.size()) &&
         (source != Source::stream || index / 2 < ranks_.size()));
  switch (source) {
    case Source::signal: return on_signal();
    case Source::guard: return on_guard_ended();
    case Source::rank: return on_rank_ended(ranks_[index]);
    case Source::stream: {
      Stream& stream = ranks_[index / 2].streams[index % 2];
      if (stream.fd) read_stream(stream);  // otherwise the end of its rank has drained it
      return;
    }
    case Source::sink: return;  // write_outputs() follows
  }
}

int Supervisor::next_timeout_ms() const {
  std::optional<Clock::time_point> next;
  for (const auto& at : {timeout_at_, end_at_, kill_at_, show_progress_at_})
    if (at && (!next || *at < *next)) next = at;
  for (const Rank& rank : ranks_)
    if (rank.failure && (!next || rank.failure->judged_by < *next)) next = rank.failure->judged_by;
  return ms_until(next);
}

int Supervisor::ms_until(std::optional<Clock::time_point> time) {
  if (!time) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*time - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

void Supervisor::on_deadlines() {
  const auto now = Clock::now();
  if (show_progress_at_ && now >= *show_progress_at_) {
    show_progress_at_.reset();
    for (Rank& rank : ranks_)
      for (Stream& stream : rank.streams) stream.tagger.show_progress(stream.output->sink.buffer());
  }
  if (timeout_at_ && now >= *timeout_at_) {
    timeout_at_.reset();
    fail(kTimeoutStatus,
         fmt::format("the job did not end within {} s; ending the {} ranks that run",
                     static_cast<double>(options_.timeout.count()) / 1000, running()));
  }
  for (Rank& rank : ranks_)
    if (rank.failure && now >= rank.failure->judged_by) judge(rank);
  if (end_at_ && now >= *end_at_) begin_ending();
  if (kill_at_ && now >= *kill_at_) {
    for (const Rank& rank : ranks_)
      if (rank.running)
        say(fmt::format("{} (pid {}) did not end on SIGTERM; killing it", name_of(rank), rank.pid));
    kill_all();
  }
}

void Supervisor::on_signal() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;  // the loop reaps after every wait
    if (signal == SIGINT && ++interrupts_ == 2)
      return fail(128 + SIGINT, "interrupted twice; ending all ranks");
    told_to_end_ = told_to_end_ || signal == SIGINT || signal == SIGTERM || signal == SIGHUP ||
                   signal == SIGQUIT;
    forward(signal);
  }
}

void Supervisor::forward(int signal) {
  for (const Rank& rank : ranks_)
    if (rank.running) ::kill(-rank.pid, signal);
}

void Supervisor::on_guard_ended() {
  // A signal that cannot be caught has killed tutti-run, so nobody waits for this process either.
  unwatch(guard_.get());
  if (!status_) status_ = 128 + SIGKILL;
  kill_all();
}

// Returns whether a signal has ended the rank, which leaves that to be handled.
bool Supervisor::was_killed(const Rank& rank) {
  siginfo_t info{};
  return ::waitid(P_PIDFD, static_cast<id_t>(rank.pidfd.get()), &info,
                  WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0 && info.si_code != CLD_EXITED;
}

// A rank that is killed closes its sockets, by which others hear of it, a little before it can be
// waited for.
void Supervisor::await_killed() const {
  constexpr std::chrono::milliseconds kLongest{100}, kPause{5};
  const auto until = Clock::now() + kLongest;
  const auto killed = [](const Rank& rank) { return rank.running && was_killed(rank); };
  while (Clock::now() < until && std::none_of(ranks_.begin(), ranks_.end(), killed))
    std::this_thread::sleep_for(kPause);
}

void Supervisor::on_rank_ended(Rank& rank) {
  siginfo_t info{};
  const int rc = ::waitid(P_PIDFD, static_cast<id_t>(rank.pidfd.get()), &info, WEXITED | WNOHANG);
  if (rc != 0 || info.si_pid == 0) return;
  assert(info.si_pid == rank.pid && rank.running);
  rank.running = false;
  rank.pidfd.reset();
  // The rank's last output comes before the message about its end.
  for (Stream& stream : rank.streams) read_to_end(stream);
  const int status = exit_status(info);
  // A rank that was killed may be the reason why this one failed, although its end is seen later.
  if (status != 0 && info.si_code == CLD_EXITED) {
    if (!first_failure_ && !ending_ && running() > 0) await_killed();
    for (Rank& other : ranks_)
      if (other.running && was_killed(other)) on_rank_ended(other);
  }
  if (status == 0) {
    succeeded_ = true;
    return judge_newcomers();
  }
  if (ending_ || end_at_) return;
  if (!first_failure_) first_failure_ = status;
  rank.failure = {status,
                  fmt::format("{} (pid {}) {}", name_of(rank), rank.pid, describe_end(info)),
                  Clock::now() + kTimeToSucceed};
  // The ranks end the store first, and then themselves.
  const bool may_be_late = rank.newcomer && info.si_code == CLD_EXITED && running() > 0;
  if (!may_be_late || succeeded_) judge(rank);
}

/// Judges the newcomers that have failed by themselves, perhaps because the job was about to end.
void Supervisor::judge_newcomers() {
  for (Rank& rank : ranks_)
    if (rank.failure) judge(rank);
}

/// Decides whether the job goes on without a rank that has failed.
void Supervisor::judge(Rank& rank) {
  assert(rank.failure);
  const auto [status, reason, by] = *std::exchange(rank.failure, std::nullopt);
  if (ending_ || end_at_) return say(reason);
  if (rank.newcomer && succeeded_) return say(reason + " after a rank had ended with status 0");
  if (allows_failure()) return go_on_without(rank, reason);
  const int others = running();
  const bool dumps = others > 0 && ranks_dump();
  const std::string when = dumps ? " when they have written their traces, after 5 s at most" : "";
  const std::string text = reason + (failures_ > 0 ? "; that is one failure too many" : "") +
                           (others > 0 ? fmt::format("; ending the other {}{}", others, when) : "");
  if (!dumps) return fail(status, text);
  status_ = status;
  say(text);
  end_at_ = Clock::now() + kTimeToDump;
}

/// A rank that ends when the job was told to end is not one without which the others go on.
bool Supervisor::allows_failure() const {
  return !told_to_end_ && failures_ < std::max(options_.max_failures, options_.max_restarts);
}

void Supervisor::go_on_without(const Rank& rank, const std::string& reason) {
  ++failures_;
  const int others = running();
  if (others == 0) return say(reason + "; none is left");
  const bool restart = restarts_ < options_.max_restarts && !succeeded_;
  const int newcomer = options_.ranks + restarts_;
  say(fmt::format("{}; the job goes on with the other {}{}", reason, others,
                  restart ? fmt::format(", and newcomer {} is started", newcomer) : ""));
  if (!restart) return;
  ++restarts_;
  (void)start(newcomer, rank.place);  // which has said why, if it cannot be started
}

bool Supervisor::ranks_dump() const {
  constexpr std::string_view kFolder = "TUTTI_TRACE_DIR=";
  return std::any_of(environment_.begin(), environment_.end(), [&](const std::string& variable) {
    return variable.starts_with(kFolder) && variable.size() > kFolder.size();
  });
}

void Supervisor::read_stream(Stream& stream) {
  assert(stream.fd && stream.output != nullptr);
  char bytes[64 * 1024];
  const ssize_t got = ::read(stream.fd.get(), bytes, sizeof bytes);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  Sink& sink = stream.output->sink;
  if (got <= 0) {
    stream.tagger.finish(sink.buffer());
    stream.fd.reset();
    return;
  }
  stream.tagger.feed({bytes, static_cast<std::size_t>(got)}, sink.buffer());
  if (stream.tagger.holds_progress() && !show_progress_at_)
    show_progress_at_ = Clock::now() + kProgressPeriod;
}

void Supervisor::read_to_end(Stream& stream) {
  // Reads as much as a pipe can hold and no more, since a grandchild may go on writing.
  for (std::size_t reads = 0; stream.fd && reads < 16; ++reads) {
    pollfd readable{stream.fd.get(), POLLIN, 0};
    if (::poll(&readable, 1, 0) != 1) return;
    read_stream(stream);
  }
}

void Supervisor::write_outputs() {
  for (const auto& output : outputs_) {
    Sink& sink = output->sink;
    sink.flush();
    if (sink.broken() && !ending_) fail(sink.status(), sink.complaint() + "; ending all ranks");
    const auto index = static_cast<std::size_t>(&output - outputs_.data());
    if (sink.empty() == output->watched) {
      output->watched = !sink.empty();
      output->watched ? watch(sink.pollable_fd(), Source::sink, index, EPOLLOUT)
                      : unwatch(sink.pollable_fd());
    }
    if (sink.full() == output->paused) continue;
    output->paused = sink.full();
    for (std::size_t i = 0; i < 2 * ranks_.size(); ++i) {
      if (ranks_[i / 2].streams.empty()) continue;
      const Stream& stream = ranks_[i / 2].streams[i % 2];
      if (!stream.fd || stream.output != output.get()) continue;
      output->paused ? unwatch(stream.fd.get())
                     : watch(stream.fd.get(), Source::stream, i, EPOLLIN);
    }
  }
}

void Supervisor::finish_output(std::optional<Clock::time_point> by) {
  for (Rank& rank : ranks_) {
    for (Stream& stream : rank.streams) {
      read_to_end(stream);
      stream.tagger.finish(stream.output->sink.buffer());
    }
  }
  // A slow reader gets all of the output, unless a signal asks this process to end, or its time
  // has passed. Where that has ended the ranks, too, their last words have as long as they had.
  if (interrupts_ >= 2) return;
  if (by) by = std::max(*by, Clock::now() + options_.grace);
  for (const auto& output : outputs_) {
    Sink& sink = output->sink;
    for (sink.flush(); !sink.empty(); sink.flush()) {
      pollfd fds[] = {
          {sink.pollable_fd(), POLLOUT, 0}, {signals_.get(), POLLIN, 0}, {guard_.get(), POLLIN, 0}};
      ::poll(fds, 3, ms_until(by));
      if (fds[2].revents != 0) return;
      if (by && Clock::now() >= *by) return give_output_up(sink);
      signalfd_siginfo info;
      if (::read(signals_.get(), &info, sizeof info) == sizeof info &&
          (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP)) {
        status_ = status_.value_or(static_cast<int>(128 + info.ssi_signo));
        return;
      }
    }
  }
}

void Supervisor::give_output_up(const Sink& unread) {
  if (!status_) status_ = kTimeoutStatus;
  say(fmt::format(
      "nobody reads our output: its last {} bytes are lost, since the {} s of --timeout "
      "have passed",
      unread.bytes(), static_cast<double>(options_.timeout.count()) / 1000));
  outputs_.back()->sink.flush();
}

void Supervisor::fail(int status, const std::string& reason) {
  assert(status != 0 && !reason.empty());
  if (!status_) status_ = status;
  say(reason);
  begin_ending();
}

void Supervisor::begin_ending() {
  if (ending_) return;
  ending_ = true;
  timeout_at_.reset();
  end_at_.reset();
  kill_at_ = Clock::now() + options_.grace;
  signal_descendants(SIGTERM);
  signal_descendants(SIGCONT);  // a stopped process receives its SIGTERM when it continues
}

void Supervisor::kill_all() {
  ending_ = true;
  end_at_.reset();
  kill_at_.reset();
  for (Rank& rank : ranks_) rank.running = false;
  left_ = false;
  if (!kill_descendants()) say("processes are left that SIGKILL does not end");
}

void Supervisor::say(std::string_view text) {
  std::string& buffer = outputs_.back()->sink.buffer();
  buffer += options_.tool;
  buffer += ": ";
  buffer += text;
  buffer += '\n';
}

int Supervisor::running() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; }));
}

}  // namespace tutti::tools
