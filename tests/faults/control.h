// What a worker tells the program that has started it, and what that program tells the worker.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tutti::faults {

/// Writes one line to standard output at once. A text of several lines becomes one.
inline void say(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  text += '\n';
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t put = write(STDOUT_FILENO, rest.data(), rest.size());
    if (put < 0 && errno != EINTR) _exit(3);  // The program that has started it is gone.
    if (put > 0) rest.remove_prefix(static_cast<std::size_t>(put));
  }
}

/// Reads commands, one a line, from standard input. One thread uses it.
class Control {
 public:
  /// Returns a command, or an empty text if there is none yet.
  std::string look() { return next(0); }
  /// Waits for a command. The end of the input ends the process.
  std::string wait() {
    for (;;) {
      if (std::string command = next(-1); !command.empty()) return command;
    }
  }

 private:
  std::string next(int timeout_ms) {
    for (;;) {
      if (const std::size_t end = read_.find('\n'); end != std::string::npos) {
        std::string command = read_.substr(0, end);
        read_.erase(0, end + 1);
        return command;
      }
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (poll(&input, 1, timeout_ms) <= 0) return "";
      char bytes[256];
      const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
      if (got <= 0) _exit(3);
      read_.append(bytes, static_cast<std::size_t>(got));
    }
  }

  std::string read_;
};

}  // namespace tutti::faults
