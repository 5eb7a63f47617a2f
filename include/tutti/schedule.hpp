// tutti: a collective as data, and how to write one. An algorithm is a pure function that returns
// each rank's Schedule; the engine, the verifier and the printer read it.
//
//     // all_reduce by way of rank 0, which adds everyone's input in the order of ranks
//     tutti::Schedule star(const tutti::PlanRequest& request) {
//       tutti::ScheduleBuilder plan(request, 1);  // one chunk a piece
//       const tutti::Verbs lane = plan.lane();
//       if (request.rank == 0) {
//         lane.reduce_copy_send(in_rank_order(request, 0), 0, the_others).completes();
//       } else {
//         lane.send(0, {0});
//         lane.receive(0, 0);
//       }
//       return std::move(plan).finish();
//     }
//     comm.add_algorithm("star", star);  // proved at its first use
//
// examples/own_algorithm is the whole of it.
#pragma once

#include <compare>
#include <span>
#include <string>
#include <vector>

#include <tutti/export.hpp>
#include <tutti/types.hpp>

namespace tutti {

/// Where an operand lives: a buffer of the call, the communicator's scratch memory, or a peer's
/// message.
enum class Place : std::uint8_t { input, output, scratch, peer };

/// One side of a step: chunks [index, index + Step::count) of a buffer, or one message from or to
/// rank `index`.
///
/// Blocks layout: chunk c is block c of the call. A buffer that holds only one block (all_gather's
/// and gather's input, reduce_scatter's and scatter's output) holds block `rank` and no other.
/// all_to_all: chunk s * ranks + d is what rank s has for rank d; a rank's input holds its row, by
/// destination, its output its column, by source.
struct Operand {
  Place place = Place::input;
  int index = 0;

  auto operator<=>(const Operand&) const = default;
};

/// A step of another lane of the same rank that must be done first: step `step` of lane `lane`, of
/// the same piece
/// (`pieces_back` 0) or of an earlier one. Pieces before the first need nothing. `lane` < 0: no
/// such step.
struct After {
  int lane = -1;
  int step = 0;
  int pieces_back = 0;

  auto operator<=>(const After&) const = default;
};

/// As Step::chunk: whichever they are. Of all_to_all, between scratch and messages alone: there all
/// blocks are of one length, so that a message may carry blocks of several pairs.
inline constexpr int kAnyChunk = -1;

/// The one kind of step: combine what these hold, and hand the result to those.
struct Step {
  std::vector<Operand>
      in;  ///< One is copied; two or more are reduced in the order written, as a left fold.
  std::vector<Operand>
      out;        ///< All receive the result. A peer stands at most once in `in` and once in `out`.
  int chunk = 0;  ///< First of the chunks whose lengths this step moves (scratch has no lengths of
                  ///< its own), or kAnyChunk.
  int count = 1;  ///< Chunks; equal for all operands.
  bool completes = false;  ///< The result is final here: post-operations (avg's division) apply.
  After after;             ///< Orders this step after one of another lane.

  bool operator==(const Step&) const = default;
};

/// Steps done in order. Lanes run side by side; a channel's end (peer, channel number, direction)
/// belongs to one lane.
struct Lane {
  int receives_on = 0;  ///< Channel number of every peer in `in`.
  int sends_on = 0;     ///< Channel number of every peer in `out`.
  std::vector<Step> steps;

  bool operator==(const Lane&) const = default;
};

/// How a buffer is cut. Lengths come from the call, not from the schedule.
enum class Layout : std::uint8_t {
  whole,   ///< The vector is cut into pieces, each piece into `chunks` chunks aligned to 64 B
           ///< (all_reduce, broadcast, reduce).
  blocks,  ///< Chunks are the call's blocks, one a rank (all_gather, reduce_scatter, gather,
           ///< scatter) or one a pair of ranks (all_to_all); each is cut into pieces.
};

/// One rank's part of a collective. Every lane walks the pieces in order: all its steps of piece 0,
/// then of piece 1.
struct Schedule {
  Collective what = Collective::all_reduce;
  Layout layout = Layout::whole;
  int rank = 0;
  int ranks = 1;
  int root = 0;            ///< 0 where the collective has none.
  int chunks = 1;          ///< Chunks of a piece (whole) or blocks of the call (blocks).
  int scratch_chunks = 0;  ///< Scratch that the lanes of this rank use, in chunks.
  int widest = 1;  ///< The most chunks that any step of any rank moves: equal on all ranks, it
                   ///< decides the cut.
  std::vector<Lane> lanes;

  bool operator==(const Schedule&) const = default;
};

/// What an algorithm is asked for: one rank's schedule.
struct PlanRequest {
  Collective what = Collective::all_reduce;
  int rank = 0;
  int ranks = 1;
  int root = 0;
  /// By rank: the number of its group, for algorithms that go by groups (ranks of a host, say).
  /// Empty: nothing is known.
  std::vector<int> groups = {};
};

// --- to write schedules ---
//
// `send`, `receive`, `reduce`, `copy` mean what NCCL's device verbs mean: receive_reduce adds this
// rank's input to what comes in, copy keeps the result in the output (receive alone does so, too),
// send hands it to peers. Nothing is checked here that verify() finds, where the counter-example
// says it better.

constexpr Operand input(int chunk) { return {Place::input, chunk}; }
constexpr Operand output(int chunk) { return {Place::output, chunk}; }
constexpr Operand scratch(int chunk) { return {Place::scratch, chunk}; }
constexpr Operand peer(int rank) { return {Place::peer, rank}; }

/// `count` consecutive chunks: one message. A plain number is one chunk.
struct Slice {
  int chunk = 0;
  int count = 1;

  constexpr Slice(int first, int how_many = 1)  // NOLINT(google-explicit-constructor)
      : chunk(first), count(how_many) {}
};

using Peers = std::vector<int>;

/// A step that was written, to be said more about. Valid while its builder is.
class TUTTI_API StepHandle {
 public:
  /// The result is final: post-operations apply here.
  const StepHandle& completes() const;
  /// Orders it after `other`, a step of another lane, of the same piece or of an earlier one.
  /// Throws `usage` for a second order and for a step of another schedule.
  const StepHandle& after(const StepHandle& other, int pieces_back = 0) const;

 private:
  friend class Verbs;
  StepHandle(Schedule& schedule, int lane, int step)
      : schedule_(&schedule), lane_(lane), step_(step) {}

  Step& step() const;

  Schedule* schedule_;
  int lane_;
  int step_;
};

/// Writes the steps of one lane. Valid while its builder is.
class TUTTI_API Verbs {
 public:
  StepHandle copy(Slice slice) const;
  StepHandle send(Slice slice, const Peers& to) const;
  StepHandle send_output(Slice slice, const Peers& to) const;
  StepHandle copy_send(Slice slice, const Peers& to) const;

  StepHandle receive(int from, Slice slice) const;
  StepHandle receive_send(int from, Slice slice, const Peers& to) const;
  StepHandle receive_reduce(int from, Slice slice) const;
  StepHandle receive_reduce_send(int from, Slice slice, const Peers& to) const;
  StepHandle receive_reduce_copy_send(int from, Slice slice, const Peers& to) const;

  /// Reductions of more than one message, or in another order than "peer, then own input".
  StepHandle reduce_copy(std::vector<Operand> in, Slice slice) const;
  StepHandle reduce_send(std::vector<Operand> in, Slice slice, const Peers& to) const;
  StepHandle reduce_copy_send(std::vector<Operand> in, Slice slice, const Peers& to) const;

  /// The one kind of step, for what no verb says.
  StepHandle step(std::vector<Operand> in, std::vector<Operand> out, Slice slice) const;

  bool empty() const;
  StepHandle first() const;  ///< Throws `usage` for an empty lane, as last() does.
  StepHandle last() const;
  /// Orders all of this lane's steps, if there are any, after all of `other`'s.
  void starts_after(const Verbs& other) const;

 private:
  friend class ScheduleBuilder;
  Verbs(Schedule& schedule, int lane) : schedule_(&schedule), lane_(lane) {}

  std::vector<Step>& steps() const;

  Schedule* schedule_;
  int lane_;
};

/// One rank's schedule in the making. Own thread only.
class TUTTI_API ScheduleBuilder {
 public:
  /// `chunks` of a piece; in the blocks layout it is the number of blocks.
  ScheduleBuilder(const PlanRequest& request, int chunks);
  ScheduleBuilder(const ScheduleBuilder&) = delete;
  ScheduleBuilder& operator=(const ScheduleBuilder&) = delete;

  /// Adds a lane that receives on one channel and sends on one.
  Verbs lane(int receives_on = 0, int sends_on = 0);

  Collective what() const { return schedule_.what; }

  /// Sets scratch memory aside.
  void scratch_chunks(int chunks) { schedule_.scratch_chunks = chunks; }

  /// `widest`: the most chunks that any step of any rank moves, not of this rank alone.
  Schedule finish(int widest = 1) &&;

 private:
  Schedule schedule_;
};

/// One operand of every rank, by rank: this rank's own `input` chunk and a message of each other.
/// Reducing in this order gives the same bits wherever it is done.
TUTTI_API std::vector<Operand> in_rank_order(const PlanRequest& request, int chunk);

// --- to prove them ---

/// How schedules are run to prove them.
struct VerifyOptions {
  int window = 2;      ///< Messages that a channel holds: the least that any transport offers.
  int pieces = 3;      ///< Consecutive pieces of each operation: scratch and slots are reused.
  int operations = 2;  ///< Consecutive operations without a barrier between them.
  bool in_place = false;
};

/// What the verifier found. `ok` is a proof (lanes are sequential and channels have one reader and
/// one writer, so every order of execution ends alike: Kahn 1974); otherwise `why` is a
/// counter-example that names rank, lane, step and chunk.
struct Verdict {
  bool ok = true;
  std::string why;
};

/// `schedules[r]` is rank r's. Rejects: malformed schedules, missing or double contributions, races
/// between lanes that no `after` orders, deadlock, messages whose size or order differs at the two
/// ends, cuts that differ between ranks, all_reduce results whose bits would differ between ranks,
/// steps that complete twice or never.
/// Thread-safe. Takes memory and time in proportion to all steps of all ranks.
TUTTI_API Verdict verify(std::span<const Schedule> schedules, const VerifyOptions& options);

// --- to show them ---
//
// Well-formed or not: who writes an algorithm wants to see what the verifier rejects.

/// A heading, then a line for each lane and each of its steps:
///
///     all_reduce, rank 1 of 2: 2 chunks of the whole vector, no scratch, widest step 1
///     lane 0, sends on channel 0
///       0  chunk 1: input[1] -> rank 0
///     lane 1, receives on channel 0, sends on channel 1
///       0  chunk 0: rank 0 + input[0] -> output[0], rank 0; completes
TUTTI_API std::string to_text(const Schedule& schedule);

/// One object, its fields named as those of Schedule, enumerators by name, `after` null where there
/// is none; a line for each step.
TUTTI_API std::string to_json(const Schedule& schedule);

/// Ranks' schedules as a picture in Graphviz's language: a box for each rank and step, messages
/// from step to step, `after` dashed. Messages to and from ranks that are not among `schedules` are
/// left out.
TUTTI_API std::string to_dot(std::span<const Schedule> schedules);

}  // namespace tutti
