// Shows training on standard output: a line for each epoch and each event and, on a terminal, a
// progress bar within the epoch.
#pragma once

#include <chrono>

#include "elastic.h"

namespace digits {

class Progress final : public Observer, public Events {
 public:
  explicit Progress(std::size_t epochs);

  void started(const Start& start) override;
  void stepped(std::size_t epoch, std::size_t step, std::size_t steps) override;
  void finished_epoch(std::size_t epoch, const Result& result) override;
  void happened(const std::string& what) override;

 private:
  const std::size_t epochs_;
  const bool terminal_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace digits
