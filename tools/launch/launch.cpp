#include "launch/launch.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <optional>
#include <system_error>

#include "common/fd.h"
#include "launch/processes.h"
#include "launch/supervisor.h"

namespace tutti::tools {
namespace {

int supervise(const LaunchOptions& options, const sigset_t& mask, Fd guard) {
  ::setpgid(0, 0);                          // the terminal sends signals to the guard only
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);       // this is not inherited from the guard
  ::prctl(PR_SET_NAME, "tutti-job", 0, 0);  // `killall -9 tutti-run` spares this process
  try {
    return Supervisor(options, mask, std::move(guard)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", options.tool.c_str(), error.what());
    return 1;  // the guard ends what is left of the job
  }
}

/// Reaps the supervisor and returns how it ended, or none if it still runs.
std::optional<siginfo_t> reap_supervisor(pid_t supervisor) {
  siginfo_t info{};
  const int rc = ::waitid(P_PID, static_cast<id_t>(supervisor), &info, WEXITED | WNOHANG);
  return rc == 0 && info.si_pid == supervisor ? std::optional(info) : std::nullopt;
}

/// Forwards signals to the supervisor until it ends. Returns how it ended.
siginfo_t guard(pid_t supervisor, const sigset_t& handled) {
  while (true) {
    siginfo_t signal{};
    if (::sigwaitinfo(&handled, &signal) < 0) continue;
    if (signal.si_signo == SIGCHLD) {
      if (const auto end = reap_supervisor(supervisor)) return *end;
      continue;
    }
    ::kill(supervisor, signal.si_signo);
    if (signal.si_signo == SIGTSTP) ::raise(SIGSTOP);
  }
}

}  // namespace

// Two processes supervise a job. The supervisor is the ranks' parent and does the work; this
// process, its guard, is the one that users see and signal. Each of them is an ancestor of every
// process of the job, so that if one is killed, the other one ends what is left.
int launch(const LaunchOptions& options) {
  assert(options.ranks >= 1 && !options.command.empty());
  sigset_t all, mask;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &mask);
  ::signal(SIGCHLD, SIG_DFL);  // a parent may have left it ignored, which would hide how ranks end
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!self) throw std::system_error(errno, std::generic_category(), "pidfd_open");

  const pid_t supervisor = ::fork();
  if (supervisor < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (supervisor == 0) ::_exit(supervise(options, mask, std::move(self)));

  const siginfo_t end = guard(supervisor, handled_signals());
  if (end.si_code != CLD_EXITED)
    std::fprintf(stderr, "%s: the supervisor (pid %d) %s; ending all ranks\n", options.tool.c_str(),
                 supervisor, describe_end(end).c_str());
  if (!kill_descendants())
    std::fprintf(stderr, "%s: processes are left that SIGKILL does not end\n",
                 options.tool.c_str());
  return exit_status(end);
}

}  // namespace tutti::tools
