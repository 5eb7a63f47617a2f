// The texts that ranks publish about themselves, encoded as one value for the store. Equal texts
// are stored once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// One text for each rank. Equal texts are kept once, and neighbouring ranks with equal texts form
/// one run, so that a text on which thousands of ranks agree takes no more space than that of one.
class Texts {
 public:
  /// Consecutive ranks with equal texts. The run begins where the previous one ends.
  struct Run {
    std::uint32_t end;    ///< The rank after the last one of the run.
    std::uint32_t value;  ///< An index into values().
    bool operator==(const Run&) const = default;
  };

  Texts() = default;
  explicit Texts(std::string of_one_rank) : values_{std::move(of_one_rank)}, runs_{{1, 0}} {}

  std::size_t size() const noexcept { return runs_.empty() ? 0 : runs_.back().end; }
  /// The distinct texts, in the order in which they first occur.
  const std::vector<std::string>& values() const noexcept { return values_; }
  const std::vector<Run>& runs() const noexcept { return runs_; }
  const std::string& operator[](std::size_t rank) const;

  /// Appends the texts of the ranks that follow.
  void append(const Texts& others);

  bool operator==(const Texts&) const = default;

 private:
  friend class RosterReader;

  std::vector<std::string> values_;
  std::vector<Run> runs_;
};

/// The texts of consecutive ranks. Each rank has one text in each column.
struct Roster {
  std::vector<Texts> columns;
  std::string refusal;  ///< The error if a rank's roster could not be decoded, else empty. There
                        ///< are no columns then.

  /// Appends the texts of the ranks that follow, which have the same number of columns.
  void append(const Roster& others);
  bool operator==(const Roster&) const = default;
};

std::string encode(const Roster& roster);

/// Decodes what encode() wrote on `rank`. Throws `corrupt`, naming `rank`, for any other bytes. The
/// memory it takes is proportional to the size of `bytes`.
Roster decode_roster(std::string_view bytes, int rank);

/// The size of a whole encoded roster, read from its first kRosterHeadBytes bytes. Throws
/// `corrupt` like decode_roster().
inline constexpr std::size_t kRosterHeadBytes = 8;
std::size_t roster_bytes(std::string_view head, int rank);

/// Throws `corrupt` for a roster of `rank` that cannot be decoded.
[[noreturn]] void refuse_roster(int rank, std::string_view why);

}  // namespace tutti
