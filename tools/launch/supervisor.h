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

/// Starts ranks, forwards their output and this process's signals, and ends all ranks when one
/// fails. It waits in one epoll for signals, processes and pipes.
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
  struct Rank {
    int number = 0;
    pid_t pid = -1;
    Fd pidfd;
    std::vector<Stream> streams;  // standard output and error; none unless tagged
    bool running = false;
  };

  [[nodiscard]] bool start(int rank);
  void watch(int fd, Source source, std::size_t index, std::uint32_t events);
  void unwatch(int fd);
  void wait();
  void dispatch(Source source, std::size_t index);
  void on_deadlines();
  [[nodiscard]] int next_timeout_ms() const;

  void on_signal();
  void on_guard_ended();
  void on_rank_ended(Rank& rank);
  void forward(int signal);

  void read_stream(Stream& stream);
  void read_to_end(Stream& stream);
  void write_outputs();
  void finish_output();

  void fail(int status, const std::string& reason);
  void begin_ending();
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
  std::vector<Rank> ranks_;

  std::optional<int> status_;  // status of the first failure
  bool ending_ = false;        // SIGTERM has been sent
  bool left_ = true;           // processes of the job may be left
  int interrupts_ = 0;
  std::optional<Clock::time_point> timeout_at_, kill_at_, show_progress_at_;
};

}  // namespace tutti::tools
