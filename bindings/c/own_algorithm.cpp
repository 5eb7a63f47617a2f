// Implements algorithms of the program's own in the C ABI.
#include <tutti/schedule.h>

#include <fmt/format.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <tutti/schedule.hpp>

#include "bindings/c/guarded.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"
#include "collectives/schedule/semantics.h"

using namespace tutti::c;
using tutti::Collective;
using tutti::Error;
using tutti::ErrorKind;
using tutti::Place;

struct tuttiPlan : Marked<0x504c414e> {
  explicit tuttiPlan(const tutti::PlanRequest& request)
      : schedule(tutti::ScheduleBuilder(request, usual_chunks(request)).finish()) {}

  tutti::Schedule schedule;
  std::string wrong;  ///< Error of the first call of the planner that failed.

 private:
  static int usual_chunks(const tutti::PlanRequest& request) {
    return tutti::collectives::layout_of(request.what) == tutti::Layout::blocks
               ? tutti::collectives::block_count(request.what, request.ranks)
               : 1;
  }
};

namespace {

constexpr std::size_t kFirstStepBytes = 56;
constexpr std::size_t kFirstAlgorithmBytes = 40;

static_assert(static_cast<int>(tuttiCollectiveReduceScatter) ==
              static_cast<int>(Collective::reduce_scatter));
static_assert(static_cast<int>(tuttiCollectiveBarrier) == static_cast<int>(Collective::barrier));
static_assert(static_cast<int>(tuttiCollectiveAllToAll) ==
              static_cast<int>(Collective::all_to_all));
static_assert(static_cast<int>(tuttiCollectiveAllToAll) + 1 == tutti::kCollectives,
              "a collective is missing here");
static_assert(static_cast<int>(tuttiPlacePeer) == static_cast<int>(Place::peer));
static_assert(TUTTI_ANY_CHUNK == tutti::kAnyChunk);

// Does what guarded() does, and keeps the message for the call that needs the plan.
template <typename Body>
tuttiResult_t on(tuttiPlan_t plan, Body&& body) noexcept {
  return guarded([&] {
    tuttiPlan& its = checked(plan, "plan");
    try {
      body(its.schedule);
    } catch (const std::exception& error) {
      if (its.wrong.empty()) its.wrong = error.what();
      throw;
    }
  });
}

std::vector<tutti::Operand> operands(const tuttiOperand_t* first, int count, const char* name) {
  if (count < 0 || (first == nullptr && count > 0))
    throw Error(ErrorKind::usage, fmt::format("tuttiPlanStep: {} operands in step->{}, which is {}",
                                              count, name, first == nullptr ? "null" : "there"));
  std::vector<tutti::Operand> read;
  for (const tuttiOperand_t& each : std::span(first, static_cast<std::size_t>(count))) {
    const int place = static_cast<int>(each.place);
    if (place < tuttiPlaceInput || place > tuttiPlacePeer)
      throw Error(ErrorKind::usage, fmt::format("tuttiPlanStep: there is no place {}; there are "
                                                "{} to {}",
                                                place, static_cast<int>(tuttiPlaceInput),
                                                static_cast<int>(tuttiPlacePeer)));
    read.push_back({static_cast<Place>(place), each.index});
  }
  return read;
}

class ProgramAlgorithm {
 public:
  explicit ProgramAlgorithm(const tuttiAlgorithm_t& given) : its_(given) {}
  ProgramAlgorithm(const ProgramAlgorithm&) = delete;
  ProgramAlgorithm& operator=(const ProgramAlgorithm&) = delete;
  ~ProgramAlgorithm() {
    if (added_ && its_.release != nullptr) its_.release(its_.context);
  }

  void added() noexcept { added_ = true; }

  tutti::Schedule plan(const tutti::PlanRequest& request) const {
    const tuttiPlanRequest_t asked{sizeof asked,
                                   static_cast<tuttiCollective_t>(request.what),
                                   request.rank,
                                   request.ranks,
                                   request.root,
                                   request.groups.empty() ? nullptr : request.groups.data(),
                                   request.places.empty() ? nullptr : request.places.data()};
    tuttiPlan plan(request);
    const tuttiResult_t result = its_.plan(&asked, &plan, its_.context);
    if (!plan.wrong.empty()) throw std::runtime_error(plan.wrong);
    if (result != tuttiSuccess)
      throw std::runtime_error(fmt::format("its planner returned {}", text_of(result)));
    return std::move(plan.schedule);
  }

 private:
  const tuttiAlgorithm_t its_;
  bool added_ = false;  // constant once it is true
};

}  // namespace

tuttiResult_t tuttiPlanShape(tuttiPlan_t plan, int chunks, int scratch_chunks, int widest) {
  return on(plan, [&](tutti::Schedule& schedule) {
    schedule.chunks = chunks;
    schedule.scratch_chunks = scratch_chunks;
    schedule.widest = widest;
  });
}

tuttiResult_t tuttiPlanLane(tuttiPlan_t plan, int receives_on, int sends_on, int* lane) {
  return on(plan, [&](tutti::Schedule& schedule) {
    result(lane, "tuttiPlanLane: lane") = static_cast<int>(schedule.lanes.size());
    schedule.lanes.push_back({receives_on, sends_on, {}});
  });
}

tuttiResult_t tuttiPlanStep(tuttiPlan_t plan, int lane, const tuttiStep_t* step) {
  return on(plan, [&](tutti::Schedule& schedule) {
    if (lane < 0 || static_cast<std::size_t>(lane) >= schedule.lanes.size())
      throw Error(ErrorKind::usage, fmt::format("tuttiPlanStep: there is no lane {}; {} were added",
                                                lane, schedule.lanes.size()));
    const tuttiStep_t given =
        read(result(step, "tuttiPlanStep: step"), TUTTI_STEP_INITIALIZER, kFirstStepBytes, "step");
    schedule.lanes[static_cast<std::size_t>(lane)].steps.push_back(
        {.in = operands(given.in, given.inputs, "in"),
         .out = operands(given.out, given.outputs, "out"),
         .chunk = given.chunk,
         .count = given.count,
         .completes = given.completes != 0,
         .after = {given.after_lane, given.after_step, given.after_pieces_back}});
  });
}

tuttiResult_t tuttiCommAddAlgorithm(tuttiComm_t comm, const tuttiAlgorithm_t* algorithm) {
  return guarded([&] {
    tutti::Communicator& communicator = checked(comm, "comm").communicator;
    const tuttiAlgorithm_t given = read(result(algorithm, "algorithm"), TUTTI_ALGORITHM_INITIALIZER,
                                        kFirstAlgorithmBytes, "algorithm");
    if (given.name == nullptr || given.plan == nullptr)
      throw Error(ErrorKind::usage, "an algorithm needs a name and a planner");
    const auto its = std::make_shared<ProgramAlgorithm>(given);
    communicator.add_algorithm(
        given.name, [its](const tutti::PlanRequest& request) { return its->plan(request); });
    its->added();
  });
}
