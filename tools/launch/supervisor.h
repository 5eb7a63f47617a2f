// The loop that supervises the ranks of one job.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/fd.h"
#include "launch/launch.h"
#include "launch/line_tagger.h"
#include "launch/processes.h"
#include "launch/sink.h"

namespace tutti::tools {

/// Starts ranks, forwards their output and this process's signals, and ends all ranks when more
/// fail than the options allow. It waits in one epoll for signals, processes and pipes.
///
/// Two invariants hold: a rank's process is reaped only through its pidfd, so that its process
/// group can be signalled while `running` is true; a stream is read only while its sink is not
/// full.
///
/// Not thread-safe. All signals must be blocked, and this process must be a subreaper.
class Supervisor {
 public:
  /// `mask` is the signal mask of the ranks; `guard` becomes readable when the guard process ends.
  Supervisor(const LaunchOptions& options, const sigset_t& mask, Fd guard);

  /// Runs the job until no process of it is left. Returns the exit status.
  [[nodiscard]] int run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Source : std::uint32_t { signal, guard, rank, stream, sink };

  struct Output {
    Sink sink;
    bool watched = false;  // epoll watches it for room to write
    bool paused = false;   // Whether its streams are not read because the sink is full.
  };
  struct Stream {
    Fd fd;
    Output* output = nullptr;
    LineTagger tagger;
  };
  struct Failure {
    int status;
    std::string reason;
    Clock::time_point judged_by;  // unless a rank ends with status 0 before
  };
  struct Rank {
    int number = 0;         // in the job; newcomers have the numbers after those of the ranks
    int place = 0;          // on this machine: its own number, or that of the rank it replaces
    bool newcomer = false;  // It has no RANK, and comes to a running job.
    pid_t pid = -1;
    Fd pidfd;
    std::vector<Stream> streams;  // standard output and error; none unless tagged
    bool running = false;
    std::optional<Failure> failure;  // of which it has yet to be decided whether the job goes on
  };

  void prepare_environment();
  [[nodiscard]] bool start(int number, int place);
  [[nodiscard]] SpawnRequest request_for(const Rank& rank) const;
  [[nodiscard]] static std::string name_of(const Rank& rank);
  void watch(int fd, Source source, std::size_t index, std::uint32_t events);
  void unwatch(int fd);
  void wait();
  void dispatch(Source source, std::size_t index);
  void on_deadlines();
  [[nodiscard]] int next_timeout_ms() const;
  [[nodiscard]] static int ms_until(std::optional<Clock::time_point> time);

  void on_signal();
  void on_guard_ended();
  static bool was_killed(const Rank& rank);
  void await_killed() const;
  void on_rank_ended(Rank& rank);
  void judge_newcomers();
  void judge(Rank& rank);
  [[nodiscard]] bool allows_failure() const;
  void go_on_without(const Rank& rank, const std::string& reason);
  void forward(int signal);

  void read_stream(Stream& stream);
  void read_to_end(Stream& stream);
  void write_outputs();
  void finish_output(std::optional<Clock::time_point> by);
  void give_output_up(const Sink& unread);

  void fail(int status, const std::string& reason);
  void begin_ending();
  [[nodiscard]] bool ranks_dump() const;
  void kill_all();
  void say(std::string_view text);
  [[nodiscard]] int running() const;

  const LaunchOptions& options_;
  const sigset_t mask_;
  Fd guard_;
  Fd port_;  // holds MASTER_PORT while the job runs
  Fd epoll_, signals_;
  std::vector<std::string> environment_;

  std::vector<std::unique_ptr<Output>> outputs_;  // stdout and stderr; one if they are one file
  std::vector<Rank> ranks_;  // as many as may be started; those that were not are not running

  std::optional<int> status_;         // status of the failure that ended the job
  std::optional<int> first_failure_;  // status of the first failure, which may have been allowed
  int failures_ = 0, restarts_ = 0;
  bool succeeded_ = false;    // A rank has ended with status 0.
  bool told_to_end_ = false;  // A signal has been forwarded that ends programs.
  bool ending_ = false;       // SIGTERM has been sent
  bool left_ = true;          // processes of the job may be left
  int interrupts_ = 0;
  std::optional<Clock::time_point> timeout_at_, end_at_, kill_at_, show_progress_at_;
};

}  // namespace tutti::tools
