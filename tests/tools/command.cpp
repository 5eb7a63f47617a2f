#include "command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <cassert>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "watchdog.h"

namespace tutti::tools {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLimit = 60s;

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  return {Fd(ends[0]), Fd(ends[1])};
}

void read_some(Fd& fd, std::string& text) {
  char bytes[64 * 1024];
  const ssize_t got = ::read(fd.get(), bytes, sizeof bytes);
  if (got > 0)
    text.append(bytes, static_cast<std::size_t>(got));
  else
    fd.reset();
}

}  // namespace

Command::Command(const std::vector<std::string>& arguments, const std::string& stdin_path)
    : mark_(fmt::format("TUTTI_TEST_MARK={}.{}", ::getpid(),
                        Clock::now().time_since_epoch().count())) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  Pipe out = make_pipe(), err = make_pipe();
  const Fd in(::open(stdin_path.empty() ? "/dev/null" : stdin_path.c_str(), O_RDONLY | O_CLOEXEC));
  assert(in);
  pid_ = ::fork();
  assert(pid_ >= 0);
  if (pid_ == 0) {
    ::dup2(in.get(), 0);
    ::dup2(out.write.get(), 1);
    ::dup2(err.write.get(), 2);
    // Otherwise the shell that runs the tests in the background decides which signals the ranks can
    // trap.
    for (const int number : {SIGHUP, SIGINT, SIGQUIT}) ::signal(number, SIG_DFL);
    ::putenv(mark_.data());
    ::execvp(argv[0], argv.data());
    ::_exit(99);
  }
  out_fd_ = std::move(out.read);
  err_fd_ = std::move(err.read);
}

Command::~Command() {
  if (!has_ended()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const pid_t pid : marked_processes()) ::kill(pid, SIGKILL);
}

bool Command::pump() {
  pollfd fds[] = {{unread_ ? -1 : out_fd_.get(), POLLIN, 0}, {err_fd_.get(), POLLIN, 0}};
  if (fds[0].fd < 0 && fds[1].fd < 0) return false;
  if (::poll(fds, 2, std::chrono::milliseconds(kLimit).count()) <= 0) {
    watchdog::write_stacks();
    return false;
  }
  if (fds[0].revents != 0) read_some(out_fd_, out_);
  if (fds[1].revents != 0) read_some(err_fd_, err_);
  return true;
}

bool Command::wait_for_output(std::string_view text) {
  const auto found = [&] {
    return out_.find(text) != std::string::npos || err_.find(text) != std::string::npos;
  };
  while (!found() && pump()) {
  }
  return found();
}

int Command::wait() {
  while (pump()) {
  }
  const auto end = Clock::now() + kLimit;
  while (!has_ended() && Clock::now() < end) ::poll(nullptr, 0, 1);
  // The program may have been silent for too long, and have written since.
  while (has_ended() && pump()) {
  }
  return status_;
}

bool Command::has_ended() {
  int status = 0;
  if (status_ < 0 && ::waitpid(pid_, &status, WNOHANG) == pid_)
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return status_ >= 0;
}

bool Command::stops() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) == 0 &&
         info.si_code == CLD_STOPPED;
}

void Command::signal(int number) const { ::kill(pid_, number); }

void Command::stop_reading() {
  out_fd_.reset();
  err_fd_.reset();
}

std::vector<pid_t> Command::marked_processes() const {
  std::vector<pid_t> marked;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (!std::isdigit(static_cast<unsigned char>(name.front()))) continue;
    std::ifstream file(entry.path() / "environ");
    const std::string environment((std::istreambuf_iterator<char>(file)), {});
    if (environment.find(mark_) != std::string::npos) marked.push_back(std::stoi(name));
  }
  return marked;
}

bool Command::nothing_is_left() const {
  const auto end = Clock::now() + kLimit;
  while (!marked_processes().empty()) {
    if (Clock::now() >= end) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

std::vector<std::string> Command::out_lines() const {
  std::vector<std::string> lines;
  std::istringstream stream(out_);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace tutti::tools
