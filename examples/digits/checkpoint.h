// The state of training in a file, from which training continues as if it had never stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace digits {

/// The settings that determine how training continues. They must be the same in the run that
/// resumes.
struct Recipe {
  std::vector<std::uint64_t> widths;
  std::uint64_t seed = 0;
  std::uint64_t batch = 0;  // samples of one step, over all ranks
  float learning_rate = 0;
  float momentum = 0;

  bool operator==(const Recipe&) const = default;
};

struct Checkpoint {
  Recipe recipe;
  std::uint64_t epochs_done = 0;
  std::vector<float> values;    // values of the network
  std::vector<float> velocity;  // values of the optimizer, one for each of the network's
};

/// Writes the state to a file beside `path`, which replaces `path` when it is complete and on disk.
/// A program that opens `path`, even after a crash, finds either the old or the new state.
void save(const std::string& path, const Checkpoint& checkpoint);

/// Throws tutti::Error, which names the file: `usage` if it is not a checkpoint or has another
/// recipe (the message says what differs), `corrupt` if it is cut short or damaged.
Checkpoint load(const std::string& path, const Recipe& recipe);

}  // namespace digits
