#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace digits {
namespace {

constexpr const char* kClearLine = "\r\033[K";

void show(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

Progress::Progress(std::size_t epochs)
    : epochs_(epochs),
      terminal_(isatty(STDOUT_FILENO) == 1),
      begin_(std::chrono::steady_clock::now()) {}

void Progress::started(const Start& start) {
  begin_ = std::chrono::steady_clock::now();
  show(fmt::format("{} samples to train on, {} held out; {} parameters in {} buckets; {} rank{}\n",
                   start.training, start.held_out, start.values, start.buckets, start.ranks,
                   start.ranks == 1 ? "" : "s"));
  if (start.epochs_done > 0) show(fmt::format("resumed after epoch {}\n", start.epochs_done));
}

void Progress::stepped(std::size_t epoch, std::size_t step, std::size_t steps) {
  if (!terminal_) return;
  constexpr std::size_t kWidth = 40;
  const std::size_t full = kWidth * step / steps;
  show(fmt::format("{}epoch {:3}/{} [{}{}] {}/{}", kClearLine, epoch + 1, epochs_,
                   std::string(full, '='), std::string(kWidth - full, ' '), step, steps));
}

void Progress::finished_epoch(std::size_t epoch, const Result& result) {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
  show(fmt::format("{}epoch {:3}/{}  loss {:.6f}  held out {:5.1f} %  {:6.2f} s\n",
                   terminal_ ? kClearLine : "", epoch + 1, epochs_, result.loss,
                   100 * result.accuracy, elapsed.count()));
}

void Progress::happened(const std::string& what) {
  show(fmt::format("{}{}\n", terminal_ ? kClearLine : "", what));
}

}  // namespace digits
