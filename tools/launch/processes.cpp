#include "launch/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <cassert>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace tutti::tools {
namespace {

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

/// The data that the child needs, made before the fork.
struct ChildPlan {
  std::vector<char*> argv, envp;
  int in, out, err;  // become 0, 1 and 2; -1: unchanged
  int report;        // receives errno
  pid_t parent;
  const sigset_t* mask;
  const std::function<bool()>* prepare;
};

[[noreturn]] void run_child(const ChildPlan& plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(1);  // the parent died before prctl
  const bool ready = (plan.in < 0 || ::dup2(plan.in, 0) >= 0) &&
                     (plan.out < 0 || ::dup2(plan.out, 1) >= 0) &&
                     (plan.err < 0 || ::dup2(plan.err, 2) >= 0);
  ::sigprocmask(SIG_SETMASK, plan.mask, nullptr);
  if (ready && (!*plan.prepare || (*plan.prepare)()))
    ::execvpe(plan.argv[0], plan.argv.data(), plan.envp.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(plan.report, &error, sizeof error);
  ::_exit(127);
}

/// Returns the parent of each process of this machine.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> result;
  std::error_code ignored;
  // The iterator becomes the end if it cannot go on.
  for (std::filesystem::directory_iterator entry("/proc", ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (!std::isdigit(static_cast<unsigned char>(name.front()))) continue;
    std::ifstream file(entry->path() / "stat");
    std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::size_t name_end = stat.rfind(')');  // the name before it may contain any character
    if (name_end == std::string::npos) continue;   // the process has ended meanwhile
    std::istringstream fields(stat.substr(name_end + 1));
    std::string state;
    pid_t parent = 0;
    if (fields >> state >> parent) result[std::stoi(name)] = parent;
  }
  return result;
}

bool descends_from(pid_t pid, pid_t ancestor, const std::map<pid_t, pid_t>& parents) {
  // A snapshot of /proc is not atomic, so the chain is followed for a bounded number of steps.
  for (int depth = 0; depth < 1000; ++depth) {
    const auto it = parents.find(pid);
    if (it == parents.end()) return false;
    if (it->second == ancestor) return true;
    pid = it->second;
  }
  return false;
}

}  // namespace

Spawned spawn(const SpawnRequest& request) {
  assert(!request.command.empty());
  Spawned result;
  const auto failed = [&] {
    result.error = errno;
    return std::move(result);
  };
  Pipe report = make_pipe(), out, err;
  if (!report.read) return failed();
  Fd null;
  if (!request.keep_stdin && !(null = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC))))
    return failed();
  if (request.capture_output) {
    if (!(out = make_pipe()).read || !(err = make_pipe()).read) return failed();
    ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  }
  const ChildPlan plan{pointers(request.command),
                       pointers(request.environment),
                       null.get(),
                       out.write.get(),
                       err.write.get(),
                       report.write.get(),
                       ::getpid(),
                       &request.signal_mask,
                       &request.prepare};
  result.pid = ::fork();
  if (result.pid < 0) return failed();
  if (result.pid == 0) run_child(plan);

  result.pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, result.pid, 0)));
  const bool watched = static_cast<bool>(result.pidfd);
  const int pidfd_error = errno;
  report.write.reset();
  ssize_t got = 0;
  while ((got = ::read(report.read.get(), &result.error, sizeof result.error)) < 0 &&
         errno == EINTR) {
  }
  if (got == 0) result.error = 0;
  if (!watched && result.error == 0) {
    result.error = pidfd_error;
    ::kill(result.pid, SIGKILL);
  }
  if (result.error != 0) ::waitpid(result.pid, nullptr, 0);
  result.out = std::move(out.read);
  assert(result.error != 0 || result.pidfd);
  result.err = std::move(err.read);
  return result;
}

void signal_descendants(int signal) {
  assert(signal > 0);
  const pid_t self = ::getpid();
  const auto all = parents();
  for (const auto& [pid, parent] : all)
    if (descends_from(pid, self, all)) ::kill(pid, signal);
}

bool kill_descendants() {
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (reap_orphans([](pid_t) { return false; })) {
    if (std::chrono::steady_clock::now() >= end) return false;
    // This repeats, since a process may fork while /proc is read.
    signal_descendants(SIGKILL);
    const timespec pause{0, 10'000'000};
    ::sigtimedwait(&child_ended, nullptr, &pause);
  }
  return true;
}

bool reap_orphans(const std::function<bool(pid_t)>& is_rank) {
  while (true) {
    siginfo_t info{};
    const int rc = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
    if (rc != 0 && errno == EINTR) continue;
    if (rc != 0) return false;
    if (info.si_pid == 0 || is_rank(info.si_pid)) return true;
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

sigset_t handled_signals() {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal :
       {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})
    sigaddset(&handled, signal);
  return handled;
}

std::string describe_end(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return fmt::format("exited with status {}", info.si_status);
  const char* core = info.si_code == CLD_DUMPED ? ", core dumped" : "";
  return fmt::format("was ended by signal {} ({}{})", info.si_status, ::strsignal(info.si_status),
                     core);
}

int exit_status(const siginfo_t& info) {
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

}  // namespace tutti::tools
