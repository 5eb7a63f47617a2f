#include <fmt/format.h>

#include <algorithm>

#include "collectives/formats/print.h"
#include "collectives/schedule/semantics.h"
#include "collectives/verify/checks.h"

namespace tutti::collectives {

std::string where(int rank, int lane, int step) {
  return fmt::format("rank {} lane {} step {}", rank, lane, step);
}

std::string moment_text(int operation, int piece) {
  return fmt::format("piece {} of operation {}", piece, operation);
}

namespace {

// The most chunks that operands of all steps name: the verifier follows each of them, which takes
// some seconds.
constexpr std::size_t kMostMoves = std::size_t{1} << 25;

template <typename... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  throw Rejected{fmt::format(format, std::forward<Args>(args)...)};
}

template <typename... Args>
[[noreturn]] void reject_too_large(fmt::format_string<Args...> format, Args&&... args) {
  throw Rejected{fmt::format(format, std::forward<Args>(args)...), true};
}

/// Checks one step of one rank by itself.
class StepShape {
 public:
  StepShape(const Schedule& schedule, int lane, int step)
      : schedule_(schedule), lane_(lane), number_(step), step_(schedule.lanes[lane].steps[step]) {}

  void check() const {
    if (step_.in.empty() != step_.out.empty())
      fail("needs something to read and to write, or neither");
    if (step_.in.empty() && step_.completes) fail("completes nothing: it has no operands");
    if (std::max(step_.in.size(), step_.out.size()) > kMostOperands)
      fail(fmt::format("has more than {} operands on one side", kMostOperands));
    const bool any = step_.chunk == kAnyChunk && schedule_.what == Collective::all_to_all;
    if ((step_.chunk < 0 && !any) || step_.count < 1 || step_.count > schedule_.chunks ||
        step_.chunk > schedule_.chunks - step_.count)
      fail(fmt::format("moves {} chunks from chunk {} of {}", step_.count, step_.chunk,
                       schedule_.chunks));
    for (const Operand& operand : step_.in) check_operand(operand, false);
    for (const Operand& operand : step_.out) check_operand(operand, true);
    check_repeats(step_.in, step_.out);
    if (step_.in.size() > 1 && !reduces(schedule_.what) && schedule_.what != Collective::barrier)
      fail("combines values, but this collective only moves them");
    if (step_.completes && !reduces(schedule_.what))
      fail("completes a value, but this collective does not reduce");
    check_after();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    reject("{} ({}): {}", where(schedule_.rank, lane_, number_),
           chunks_text(step_.chunk, std::max(step_.count, 1)), what);
  }

  void check_operand(const Operand& operand, bool written) const {
    const int rank = schedule_.rank;
    switch (operand.place) {
      case Place::peer:
        if (operand.index < 0 || operand.index >= schedule_.ranks || operand.index == rank)
          fail(fmt::format("{} is no peer (of {} ranks)", to_text(operand), schedule_.ranks));
        return;
      case Place::scratch:
        if (operand.index < 0 || step_.count > schedule_.scratch_chunks ||
            operand.index > schedule_.scratch_chunks - step_.count)
          fail(fmt::format("{} is outside of {} scratch chunks", to_text(operand),
                           schedule_.scratch_chunks));
        return;
      case Place::input:
      case Place::output: break;
      default: fail("names an unknown place");
    }
    if (written && operand.place == Place::input)
      fail("writes to the input, which is the caller's");
    if (operand.index != step_.chunk || operand.index < 0)  // kAnyChunk names no chunk of a buffer
      fail(fmt::format("names {}: lengths are those of {}", to_text(operand),
                       chunks_text(step_.chunk, step_.count)));
    const auto exists = operand.place == Place::input ? input_exists : output_exists;
    const RankCall call = rank_call_of(schedule_);
    for (int chunk = step_.chunk; chunk < step_.chunk + step_.count; ++chunk)
      if (!exists(call, chunk))
        fail(fmt::format("{} holds no chunk {} on this rank",
                         operand.place == Place::input ? "the input" : "the output", chunk));
  }

  void check_repeats(const std::vector<Operand>& in, const std::vector<Operand>& out) const {
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto same = [&](const Operand& other) { return other == in[i]; };
      if (in[i].place == Place::peer && std::any_of(in.begin(), in.begin() + i, same))
        fail(fmt::format("receives twice from {}", to_text(in[i])));
      // Steps work element by element, so a step may read and write the same chunk, but not a
      // shifted one.
      if (in[i].place == Place::scratch)
        for (const Operand& target : out)
          if (target != in[i] && overlap(target, in[i]))
            fail(fmt::format("{} and {} overlap", to_text(in[i]), to_text(target)));
    }
    for (std::size_t i = 0; i < out.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (out[i] == out[j] || overlap(out[i], out[j]))
          fail(fmt::format("writes twice to {}", to_text(out[i])));
  }

  bool overlap(const Operand& a, const Operand& b) const {
    return a.place == Place::scratch && b.place == Place::scratch &&
           a.index < b.index + step_.count && b.index < a.index + step_.count;
  }

  void check_after() const {
    const After& after = step_.after;
    if (after.lane < 0) return;
    if (after.lane == lane_ || after.lane >= static_cast<int>(schedule_.lanes.size()) ||
        after.step < 0 || after.step >= static_cast<int>(schedule_.lanes[after.lane].steps.size()))
      fail(fmt::format("is after lane {} step {}, which is no step of another lane", after.lane,
                       after.step));
    if (after.pieces_back < 0 || after.pieces_back > kMostPiecesBack)
      fail(fmt::format("is after a step {} pieces back (0 to {})", after.pieces_back,
                       kMostPiecesBack));
  }

  const Schedule& schedule_;
  const int lane_;
  const int number_;
  const Step& step_;
};

/// Checks the fields that must be equal on all ranks, and those that can be wrong on one rank
/// besides its steps.
void check_header(const Schedule& first, const Schedule& mine, int rank, int ranks) {
  const auto differs = [&](std::string_view field, auto found, auto expected) {
    if (found != expected)
      reject("rank {}: {} is {}, expected {}", rank, field, int(found), int(expected));
  };
  differs("rank", mine.rank, rank);
  differs("ranks", mine.ranks, ranks);
  differs("collective", mine.what, first.what);
  differs("root", mine.root, first.root);
  differs("layout", mine.layout, layout_of(mine.what));
  differs("chunks", mine.chunks, first.chunks);
  differs("widest", mine.widest, first.widest);
  if (static_cast<int>(mine.what) >= kCollectives) reject("rank {}: unknown collective", rank);
  if (mine.root < 0 || mine.root >= ranks || (mine.root != 0 && !has_root(mine.what)))
    reject("rank {}: root {} of {} ranks", rank, mine.root, ranks);
  if (mine.what == Collective::all_to_all && ranks > kMostChunks / ranks)
    reject_too_large("all_to_all of {} ranks is too large to verify", ranks);
  if (mine.layout == Layout::blocks) differs("chunks", mine.chunks, block_count(mine.what, ranks));
  const int held = positions(mine.what, ranks, mine.chunks);
  const int most = kMostChunks / ranks;
  if (held < 1) reject("rank {}: {} chunks in a buffer (1 to {})", rank, held, most);
  if (held > most)
    reject_too_large("rank {}: {} chunks in a buffer (at most {} can be verified)", rank, held,
                     most);
  if (mine.scratch_chunks < 0)
    reject("rank {}: {} scratch chunks (0 to {})", rank, mine.scratch_chunks, most);
  if (mine.scratch_chunks > most)
    reject_too_large("rank {}: {} scratch chunks (at most {} can be verified)", rank,
                     mine.scratch_chunks, most);
  for (const Lane& lane : mine.lanes)
    if (std::min(lane.receives_on, lane.sends_on) < 0 ||
        std::max(lane.receives_on, lane.sends_on) >= kMostChannels)
      reject("rank {} lane {}: channel numbers are 0 to {}", rank, &lane - mine.lanes.data(),
             kMostChannels - 1);
}

}  // namespace

void check_shape(std::span<const Schedule> schedules) {
  const int ranks = static_cast<int>(schedules.size());
  if (ranks == 0) reject("no schedules");
  if (ranks > kMostChunks) reject_too_large("{} ranks (at most {})", ranks, kMostChunks);
  int widest = 1;
  std::size_t moves = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Schedule& schedule = schedules[rank];
    check_header(schedules[0], schedule, rank, ranks);
    for (int lane = 0; lane < static_cast<int>(schedule.lanes.size()); ++lane)
      for (int step = 0; step < static_cast<int>(schedule.lanes[lane].steps.size()); ++step) {
        StepShape(schedule, lane, step).check();
        const Step& sound = schedule.lanes[lane].steps[step];
        widest = std::max(widest, sound.count);
        moves += static_cast<std::size_t>(sound.count) * (sound.in.size() + sound.out.size());
        if (moves > kMostMoves)
          reject_too_large("the steps of all ranks move more than {} chunks", kMostMoves);
      }
  }
  if (schedules[0].widest != widest)
    reject("rank 0: widest is {}, but the widest step of any rank moves {}", schedules[0].widest,
           widest);
}

}  // namespace tutti::collectives
