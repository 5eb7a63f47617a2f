// The state of training in a file, from which it goes on as if it had never stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace digits {

/// What decides how training goes on; must be the same in the run that resumes.
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
  std::vector<float> values;    // of the network
  std::vector<float> velocity;  // of the optimizer; as many
};

/// Writes a file of its own beside `path` and puts it in the place of `path` when it is whole and
/// on disk: whoever opens `path`, also after a crash, finds the old state or the new one.
void save(const std::string& path, const Checkpoint& checkpoint);

/// Throws tutti::Error, which names the file: `usage` when it is no checkpoint, or of another
/// recipe (it says what differs); `corrupt` when it is cut short or damaged.
Checkpoint load(const std::string& path, const Recipe& recipe);

}  // namespace digits
