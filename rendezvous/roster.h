// What ranks say of themselves, as one value for the store: what several say alike is in it once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// A text of each rank. Equal texts are kept once, and so are neighbours that say the same: what
/// thousands of ranks agree on costs no more than what one says.
class Texts {
 public:
  /// Ranks in a row that say the same: those from the run before on, below `end`.
  struct Run {
    std::uint32_t end;
    std::uint32_t value;  ///< Of values().
    bool operator==(const Run&) const = default;
  };

  Texts() = default;
  explicit Texts(std::string of_one_rank) : values_{std::move(of_one_rank)}, runs_{{1, 0}} {}

  std::size_t size() const noexcept { return runs_.empty() ? 0 : runs_.back().end; }
  /// Those that differ, as they first come.
  const std::vector<std::string>& values() const noexcept { return values_; }
  const std::vector<Run>& runs() const noexcept { return runs_; }
  const std::string& operator[](std::size_t rank) const;

  /// `others` are of the ranks that follow.
  void append(const Texts& others);

  bool operator==(const Texts&) const = default;

 private:
  friend class RosterReader;

  std::vector<std::string> values_;
  std::vector<Run> runs_;
};

/// Of ranks in a row: what each says is a text in each column.
struct Roster {
  std::vector<Texts> columns;
  std::string refusal;  ///< Why there are none: what a rank said could not be read.

  /// `others` are of the ranks that follow, with as many columns.
  void append(const Roster& others);
  bool operator==(const Roster&) const = default;
};

std::string encode(const Roster& roster);

/// As `rank` wrote it. Throws `corrupt`, naming `rank`, for anything that encode() did not write.
/// Takes memory in proportion to `bytes`.
Roster decode_roster(std::string_view bytes, int rank);

/// Of the whole of an encoded roster, from its first kRosterHeadBytes. Throws as decode_roster().
inline constexpr std::size_t kRosterHeadBytes = 8;
std::size_t roster_bytes(std::string_view head, int rank);

[[noreturn]] void refuse_roster(int rank, std::string_view why);

}  // namespace tutti
