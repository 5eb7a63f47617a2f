// One rank of a world: its communicators, the calls that it has under way, and what has happened.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "model.h"
#include "runtime/membership/split.h"

namespace tutti::worlds {

/// A call under way, or the calls of a group. It stays where it is in memory.
struct Attempt {
  std::size_t step = 0;
  int slot = 0;
  std::deque<Memory> memories;                    // Calls hold addresses in them.
  std::vector<std::shared_ptr<void>> registered;  // These keep memories registered.
  std::optional<Persistent> persistent;
  std::optional<Group> group;
  Work work;
  Received received;
  int expected_source = -1;
  bool receives = false;
  TimePoint begun{};
  bool ended = false;  // the callback or the blocking call has told how
  bool succeeded = false;
  bool settled = false;  // its memory is the program's again
};

/// A rank's place in one of the communicators of a slot.
struct Seat {
  enum class State { awaited, here, absent };
  State state = State::awaited;
  std::optional<Communicator> comm;
  std::vector<int> members;  // world ranks
  int rank = 0;              // in the communicator
};

/// Returns the step as this rank makes it: of calls that do not match, one rank's has another count
/// or another operation.
inline Step own_call(Step step, const Seat& seat) {
  const int chosen = static_cast<int>(step.salt % seat.members.size());
  if (step.what != What::mismatch || seat.rank != chosen) return step;
  if (step.salt >> 32 & 1)
    --step.count;
  else
    step.op = step.op == Op::sum ? Op::max : Op::sum;
  return step;
}

/// A split that this rank has begun and not ended.
struct Split {
  std::size_t step = 0;
  std::unique_ptr<Splitting> splitting;
  Work work;
  bool exchanged = false, made = false, over = false;
  std::optional<Error> error;
};

/// Keeps for the report what a rank did or saw.
struct Note {
  TimePoint at;
  std::size_t step;
  std::string_view what;
};

struct Player {
  int number = 0;
  std::size_t next = 0;  // the step that it makes next
  TimePoint paused_until{};
  bool dead = false;
  std::vector<Seat> seats;                        // indexed by slot
  std::deque<std::unique_ptr<Attempt>> attempts;  // those that are not settled
  std::vector<std::unique_ptr<Attempt>> past;     // their memory is checked at the end
  std::vector<std::unique_ptr<Split>> splits;
  std::vector<int> busy;  // slots in whose calls or callbacks this rank is, one inside another
  std::deque<Note> notes;

  void note(TimePoint at, std::size_t step, std::string_view what) {
    if (notes.size() == 14) notes.pop_front();
    notes.push_back({at, step, what});
  }
  bool is_busy(int slot) const { return std::find(busy.begin(), busy.end(), slot) != busy.end(); }
  int pending(int slot) const {
    return static_cast<int>(std::count_if(
        attempts.begin(), attempts.end(),
        [&](const auto& attempt) { return attempt->slot == slot && !attempt->settled; }));
  }
};

}  // namespace tutti::worlds
