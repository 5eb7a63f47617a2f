// tutti: schedules, which describe a collective as data, and how to write them. An algorithm is a
// pure function that returns each rank's Schedule. Engine, verifier and printer read it.
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
//     comm.add_algorithm("star", star);  // verified at its first use
//
// examples/own_algorithm has the complete program.
#pragma once

#include <compare>
#include <span>
#include <string>
#include <vector>

#include <tutti/export.hpp>
#include <tutti/types.hpp>

namespace tutti {

/// Where an operand is: in a buffer of the call, in the communicator's scratch memory, or in a
/// message from or to a peer.
enum class Place : std::uint8_t { input, output, scratch, peer };

/// One side of a step: chunks [index, index + Step::count) of a buffer, or one message from or to
/// rank `index`.
///
/// In the blocks layout chunk c is block c of the call. A buffer that holds only one block (the
/// input of all_gather and gather, the output of reduce_scatter and scatter) holds block `rank` and
/// no other. In all_to_all, chunk s * ranks + d is the block from rank s to rank d; a rank's input
/// holds its row, by destination, and its output its column, by source.
struct Operand {
  Place place = Place::input;
  int index = 0;

  auto operator<=>(const Operand&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// A step of another lane of the same rank that must be done first: step `step` of lane `lane`, of
/// the same piece (`pieces_back` 0) or of an earlier one. For the first pieces, which have no such
/// earlier piece, it orders nothing. A negative `lane` means no such step.
struct After {
  int lane = -1;
  int step = 0;
  int pieces_back = 0;

  auto operator<=>(const After&) const = default;
};

/// The value of Step::chunk for a step that moves any chunks. Only all_to_all has such steps,
/// between scratch and messages: there all blocks have one length, so that a message may carry
/// blocks of several pairs.
inline constexpr int kAnyChunk = -1;
static_assert(kAnyChunk < 0, "chunks have numbers from 0 on");

/// One step, which combines the operands `in` and hands the result to the operands `out`. A step
/// with neither moves nothing and only waits for `after`, so that the next step of its lane can
/// wait for several.
struct Step {
  std::vector<Operand>
      in;  ///< One is copied; two or more are reduced in the order written, as a left fold.
  std::vector<Operand>
      out;        ///< All receive the result. A peer is at most once in `in` and once in `out`.
  int chunk = 0;  ///< First of the chunks whose lengths this step moves (scratch has no lengths of
                  ///< its own), or kAnyChunk.
  int count = 1;  ///< Number of chunks; equal for all operands.
  bool completes = false;  ///< The result is final here, so post-operations (avg's division) apply.
  After after;             ///< Orders this step after one of another lane.

  bool operator==(const Step&) const = default;
};

/// A sequence of steps. Lanes run side by side; each end of a channel (peer, channel number,
/// direction) belongs to one lane.
struct Lane {
  int receives_on = 0;  ///< Channel number for every peer in `in`.
  int sends_on = 0;     ///< Channel number for every peer in `out`.
  std::vector<Step> steps;

  bool operator==(const Lane&) const = default;
};

/// How a buffer is divided. The lengths come from the call, not from the schedule.
enum class Layout : std::uint8_t {
  whole,   ///< The vector is cut into pieces, each piece into `chunks` chunks aligned to 64 B
           ///< (all_reduce, broadcast, reduce).
  blocks,  ///< The chunks are the call's blocks, one for each rank (all_gather, reduce_scatter,
           ///< gather, scatter) or for each pair of ranks (all_to_all); each is cut into pieces.
};

/// One rank's part of a collective. Every lane does all its steps for piece 0, then for piece 1,
/// and so on.
struct Schedule {
  Collective what = Collective::all_reduce;
  Layout layout = Layout::whole;
  int rank = 0;
  int ranks = 1;
  int root = 0;            ///< 0 if the collective has no root.
  int chunks = 1;          ///< Chunks of a piece (whole) or blocks of the call (blocks).
  int scratch_chunks = 0;  ///< Scratch memory that this rank's lanes use, in chunks.
  int widest = 1;  ///< The most chunks that any step of any rank moves. It is equal on all ranks,
                   ///< since it decides how buffers are cut.
  std::vector<Lane> lanes;

  bool operator==(const Schedule&) const = default;
};

/// A request to an algorithm for one rank's schedule.
struct PlanRequest {
  Collective what = Collective::all_reduce;
  int rank = 0;
  int ranks = 1;
  int root = 0;
  /// The number of each rank's group, for algorithms that use groups (the ranks of a host, for
  /// example). Empty if groups are not known.
  std::vector<int> groups = {};
  /// Stands in place of `groups`: each group has this many consecutive ranks, and the last one what
  /// is left. 0 if groups are not equal. One rank of very many is then planned without a list of
  /// all.
  int group_size = 0;
  /// A number for each rank: ranks of a group with near numbers are near each other in their
  /// machine, in one package for example, or with a fast link between their GPUs. Empty if no rank
  /// is nearer than another.
  std::vector<int> places = {};
};

// --- Writing schedules ---
//
// `send`, `receive`, `reduce` and `copy` mean what NCCL's device primitives mean: receive_reduce
// adds this rank's input to the message, copy stores the result in the output (so does receive
// alone), and send hands it to peers. These functions do not check what verify() checks, since its
// counter-example says it better.

constexpr Operand input(int chunk) { return {Place::input, chunk}; }
constexpr Operand output(int chunk) { return {Place::output, chunk}; }
constexpr Operand scratch(int chunk) { return {Place::scratch, chunk}; }
constexpr Operand peer(int rank) { return {Place::peer, rank}; }

/// `count` consecutive chunks, which make one message. A plain number stands for one chunk.
struct Slice {
  int chunk = 0;
  int count = 1;

  constexpr Slice(int first, int how_many = 1)  // NOLINT(google-explicit-constructor)
      : chunk(first), count(how_many) {}
};

using Peers = std::vector<int>;

/// A step that has been written and can be modified. Valid as long as its builder is.
class TUTTI_API StepHandle {
 public:
  /// Marks the result as final, so that post-operations apply here.
  const StepHandle& completes() const;
  /// Orders this step after `other`, a step of another lane, of the same piece or of an earlier
  /// one. Throws `usage` if this step already has an order, and for a step of another schedule.
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

/// Writes the steps of one lane. Valid as long as its builder is.
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

  /// These reduce more than one message, or in another order than "peer, then own input".
  StepHandle reduce_copy(std::vector<Operand> in, Slice slice) const;
  StepHandle reduce_send(std::vector<Operand> in, Slice slice, const Peers& to) const;
  StepHandle reduce_copy_send(std::vector<Operand> in, Slice slice, const Peers& to) const;

  /// Writes any step, for what the functions above cannot express.
  StepHandle step(std::vector<Operand> in, std::vector<Operand> out, Slice slice) const;

  bool empty() const;
  StepHandle first() const;  ///< Throws `usage` for an empty lane, as last() does.
  StepHandle last() const;
  /// Orders all steps of this lane, if there are any, after all steps of `other`.
  void starts_after(const Verbs& other) const;

 private:
  friend class ScheduleBuilder;
  Verbs(Schedule& schedule, int lane) : schedule_(&schedule), lane_(lane) {}

  std::vector<Step>& steps() const;

  Schedule* schedule_;
  int lane_;
};

/// Builds one rank's schedule. One thread uses it.
class TUTTI_API ScheduleBuilder {
 public:
  /// `chunks` is the number of chunks in a piece, or of blocks in the blocks layout.
  ScheduleBuilder(const PlanRequest& request, int chunks);
  ScheduleBuilder(const ScheduleBuilder&) = delete;
  ScheduleBuilder& operator=(const ScheduleBuilder&) = delete;

  /// Adds a lane that receives on one channel and sends on one.
  Verbs lane(int receives_on = 0, int sends_on = 0);

  Collective what() const { return schedule_.what; }

  /// Sets the amount of scratch memory, in chunks.
  void scratch_chunks(int chunks) { schedule_.scratch_chunks = chunks; }

  /// `widest` is the most chunks that any step of any rank moves, not of this rank alone.
  Schedule finish(int widest = 1) &&;

 private:
  Schedule schedule_;
};

/// One operand for every rank, in the order of ranks: this rank's own `input` chunk and a message
/// from each other rank. A reduction in this order gives the same bits on whichever rank it runs.
TUTTI_API std::vector<Operand> in_rank_order(const PlanRequest& request, int chunk);

// --- Verifying schedules ---

/// How verify() runs the schedules.
struct VerifyOptions {
  int window = 2;      ///< Messages that a channel holds; every transport offers at least 2.
  int pieces = 3;      ///< Consecutive pieces of each operation, which reuse scratch and slots.
  int operations = 2;  ///< Consecutive operations without a barrier between them.
  bool in_place = false;
};

/// The result of a verification. If `ok` is true, the schedules are proved: lanes are sequential
/// and channels have one reader and one writer, so every order of execution ends alike (Kahn 1974).
/// Otherwise `why` is a counter-example that names rank, lane, step and chunk.
struct Verdict {
  bool ok = true;
  std::string why;
  /// The schedules are too large for the verifier, which says nothing about whether they are right.
  bool too_large = false;
};

/// Verifies the schedules of all ranks; `schedules[r]` is rank r's. Rejects malformed schedules,
/// missing or double contributions, races between lanes that no `after` orders, deadlock, messages
/// whose size or order differs at the two ends, cuts that differ between ranks, all_reduce results
/// whose bits would differ between ranks, and steps that complete twice or never. Thread-safe.
/// Takes memory and time in proportion to the number of steps of all ranks.
TUTTI_API Verdict verify(std::span<const Schedule> schedules, const VerifyOptions& options);

// --- Printing schedules ---
//
// Schedules need not be well-formed: the author of an algorithm wants to see what the verifier
// rejects.

/// Returns a heading, then a line for each lane and each of its steps:
///
///     all_reduce, rank 1 of 2: 2 chunks of the whole vector, no scratch, widest step 1
///     lane 0, sends on channel 0
///       0  chunk 1: input[1] -> rank 0
///     lane 1, receives on channel 0, sends on channel 1
///       0  chunk 0: rank 0 + input[0] -> output[0], rank 0; completes
TUTTI_API std::string to_text(const Schedule& schedule);

/// Returns one JSON object with the fields of Schedule. Enumerators are names, and `after` is null
/// if there is none. Each step has a line.
TUTTI_API std::string to_json(const Schedule& schedule);

/// Returns the schedules of several ranks as a graph in Graphviz's language, with a box for each
/// rank and step, edges for messages, and dashed edges for `after`. Messages to and from ranks that
/// are not in `schedules` are left out.
TUTTI_API std::string to_dot(std::span<const Schedule> schedules);

}  // namespace tutti
