#include "elastic.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>

#include "learner.h"

namespace digits {
namespace {

using std::chrono::steady_clock;
using tutti::Communicator;
using tutti::Error;
using tutti::ErrorKind;

// Under this name in the job's store a rank that kills itself says when, so that the others can say
// how long it took until they knew.
constexpr const char* kKilledAt = "digits/killed_at";

std::int64_t now_ns() {  // one clock for all processes of a machine
  return std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count();
}

steady_clock::time_point soon() { return steady_clock::now() + std::chrono::seconds(10); }

double ms(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

/// Whether the ranks that are left can go on after it.
bool is_loss(const Error& error) {
  return error.kind() == ErrorKind::peer_lost || error.kind() == ErrorKind::timeout;
}

class Elastic {
 public:
  Elastic(bool join, const Dataset& data, const Settings& settings, const ElasticSettings& elastic,
          Observer& observer, Events& events)
      : data_(data),
        settings_(settings),
        elastic_(elastic),
        observer_(observer),
        events_(events),
        communicator_(join ? Communicator::join() : Communicator::from_env()) {
    if (join) {
      events_.happened(fmt::format("has joined the job as rank {} of {}", communicator_.rank(),
                                   communicator_.size()));
      return;
    }
    number_ = communicator_.rank();
    full_size_ = communicator_.size();
    learner_.emplace(data_, settings_, Learner::Kind::recoverable);
    progress_ = {0, 0};
  }

  ElasticResult run() {
    for (;;) {
      try {
        if (!in_step_) come_into_step();
        if (const std::optional<Result> result = go_on()) return {*result, communicator_.rank()};
      } catch (const Error& error) {
        if (!is_loss(error)) throw;
        recover(error);
      }
    }
  }

 private:
  // How far a rank has come. A newcomer that has no state yet has -1.
  struct Progress {
    std::int64_t steps = -1;   // that it has finished, over all epochs
    std::int64_t epochs = -1;  // that it has measured
  };

  static_assert(sizeof(Progress) == 2 * sizeof(std::int64_t));

  /// Brings all ranks to the same state and step. A step counts only if all have finished it: a
  /// rank gets its gradients when all others have given theirs, so it is one step ahead at most.
  void come_into_step() {
    std::vector<Progress> all(static_cast<std::size_t>(communicator_.size()));
    communicator_.all_gather(&progress_, all.data(), 2, tutti::DataType::int64);
    const auto first = std::find_if(all.begin(), all.end(), [](auto& p) { return p.steps >= 0; });
    if (first == all.end())
      throw std::runtime_error("no rank is left that has the state of the training");
    Progress common = *first;
    bool complete = true;
    for (const Progress& one : all) {
      complete = complete && one.steps >= 0;
      if (one.steps < 0) continue;
      common = {std::min(common.steps, one.steps), std::min(common.epochs, one.epochs)};
    }
    if (progress_.steps > common.steps) {
      assert(progress_.steps == common.steps + 1);
      learner_->undo_step();
      events_.happened(fmt::format("undoes step {}, which not all have finished", common.steps));
    }
    if (progress_.steps >= 0) progress_ = common;
    if (!complete) share_state(static_cast<int>(first - all.begin()), common);
    learner_->attach(communicator_);
    learner_->ddp().check_parameters();
    in_step_ = true;
    grow_at_ = !gave_up_ && communicator_.size() < full_size_ && may_grow()
                   ? std::optional(progress_.steps / steps_per_epoch() + 2)
                   : std::nullopt;
    tell_where_we_are();
  }

  bool may_grow() const { return elastic_.await_newcomers.count() > 0; }
  std::int64_t steps_per_epoch() const {
    return static_cast<std::int64_t>(learner_->steps_per_epoch());
  }

  void tell_where_we_are() {
    if (communicator_.rank() != 0) return;
    if (!started_)
      observer_.started({learner_->split().training.size(), learner_->split().held_out.size(),
                         learner_->values().size(), learner_->ddp().buckets().size(),
                         static_cast<std::size_t>(progress_.epochs), communicator_.size()});
    else
      events_.happened(fmt::format("{} ranks go on from step {}: epoch {}, step {} of {}",
                                   communicator_.size(), progress_.steps,
                                   progress_.steps / steps_per_epoch() + 1,
                                   progress_.steps % steps_per_epoch() + 1, steps_per_epoch()));
    started_ = true;
  }

  /// Gives ranks without state all that they need: the settings, how far the training has come, and
  /// the state.
  void share_state(int root, const Progress& common) {
    std::array<std::int64_t, 6> numbers{};
    std::array<float, 2> rates{settings_.learning_rate, settings_.momentum};
    if (communicator_.rank() == root)
      numbers = {static_cast<std::int64_t>(settings_.seed),
                 static_cast<std::int64_t>(settings_.batch),
                 static_cast<std::int64_t>(settings_.epochs),
                 full_size_,
                 common.steps,
                 common.epochs};
    communicator_.broadcast(std::span<std::int64_t>(numbers), root);
    communicator_.broadcast(std::span<float>(rates), root);
    const bool newcomer = progress_.steps < 0;
    if (newcomer) {
      settings_.seed = static_cast<std::uint64_t>(numbers[0]);
      settings_.batch = static_cast<std::size_t>(numbers[1]);
      settings_.epochs = static_cast<std::size_t>(numbers[2]);
      settings_.learning_rate = rates[0];
      settings_.momentum = rates[1];
      full_size_ = static_cast<int>(numbers[3]);
      learner_.emplace(data_, settings_, Learner::Kind::recoverable);
    }
    communicator_.broadcast(learner_->values(), root);
    communicator_.broadcast(learner_->velocity(), root);
    communicator_.broadcast(learner_->counts(), root);
    if (!newcomer) return;
    progress_ = {numbers[4], numbers[5]};
    started_ = true;
  }

  /// Trains until the end, or until the ranks have to come into step again (then it returns none).
  std::optional<Result> go_on() {
    const std::int64_t steps = steps_per_epoch();
    const auto epochs = static_cast<std::int64_t>(settings_.epochs);
    while (in_step_) {
      const std::int64_t epoch = progress_.steps / steps;
      if (epoch > progress_.epochs || epoch == epochs) {
        if (epoch == epochs) return finish();
        show(epoch, learner_->measure());
        progress_.epochs = epoch;
      } else if (grow_at_ && epoch >= *grow_at_) {
        grow();
      } else {
        take_step(epoch, progress_.steps % steps);
      }
    }
    return std::nullopt;
  }

  void take_step(std::int64_t epoch, std::int64_t step) {
    learner_->take_step(static_cast<std::size_t>(epoch), static_cast<std::size_t>(step),
                        [this] { die_if_told(); });
    if (has_aborted_for_show()) return;
    ++progress_.steps;
    if (communicator_.rank() == 0)
      observer_.stepped(static_cast<std::size_t>(epoch), static_cast<std::size_t>(step) + 1,
                        learner_->steps_per_epoch());
  }

  /// The last word of all ranks. Without it, a rank that has got all results might leave, while
  /// another one has lost a rank and waits for the others in shrink().
  std::optional<Result> finish() {
    Result result;
    std::optional<Error> lost;
    try {
      result = learner_->measure();
    } catch (const Error& error) {
      if (!is_loss(error)) throw;
      lost = error;
    }
    const bool all = communicator_.agree(lost ? 0 : 1, elastic_.patience).flags == 1;
    if (!all) throw lost.value_or(Error(ErrorKind::peer_lost, "another rank has lost a rank"));
    show(static_cast<std::int64_t>(settings_.epochs), result);
    check_counts();
    return result;
  }

  void check_counts() {
    const std::span<const float> counts = learner_->counts();
    const auto wrong = std::count_if(counts.begin(), counts.end(), [&](float count) {
      return count != static_cast<float>(settings_.epochs);
    });
    if (wrong != 0)
      throw Error(
          ErrorKind::internal,
          fmt::format("{} of {} samples were not in one step of each epoch", wrong, counts.size()));
    if (communicator_.rank() == 0)
      events_.happened(
          fmt::format("each of {} samples was in exactly one step of each of {} epochs",
                      counts.size(), settings_.epochs));
  }

  void show(std::int64_t epochs_done, const Result& result) {
    if (communicator_.rank() != 0 || epochs_done <= shown_) return;
    shown_ = epochs_done;
    observer_.finished_epoch(static_cast<std::size_t>(epochs_done - 1), result);
  }

  void recover(const Error& error) {
    const std::int64_t noticed = now_ns();
    events_.happened(fmt::format("{}: {}", tutti::to_string(error.kind()), error.what()));
    if (learner_) learner_->detach();
    in_step_ = gave_up_ = false;
    const int before = communicator_.size();
    communicator_ = communicator_.shrink(elastic_.patience);
    const std::int64_t shrunk = now_ns();
    try {
      tell_loss(before, noticed, shrunk);
    } catch (const Error& again) {  // the next call has the same error
      if (!is_loss(again)) throw;
    }
  }

  void tell_loss(int before, std::int64_t noticed, std::int64_t shrunk) {
    std::array<std::int64_t, 2> times{noticed, shrunk - noticed};
    communicator_.all_reduce(std::span<std::int64_t>(times), tutti::Op::max);
    if (communicator_.rank() != 0) return;
    // A rank that was killed from outside has not said when.
    const std::int64_t killed = communicator_.store()->add(kKilledAt, 0, soon());
    const std::string known =
        0 < killed && killed < times[0]
            ? fmt::format("known to all {:.1f} ms after the kill; ", ms(times[0] - killed))
            : "";
    if (killed > 0) communicator_.store()->add(kKilledAt, -killed, soon());
    events_.happened(fmt::format("{} of {} ranks are left: {}shrink took {:.1f} ms",
                                 communicator_.size(), before, known, ms(times[1])));
  }

  void grow() {
    const int wanted = full_size_ - communicator_.size();
    assert(wanted > 0);
    learner_->detach();
    in_step_ = false;
    gave_up_ = true;  // unless they come
    const std::int64_t begin = now_ns();
    try {
      communicator_ = communicator_.grow(wanted, elastic_.await_newcomers);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout) throw;
      if (communicator_.rank() == 0)
        events_.happened(fmt::format("no newcomers: {}", error.what()));
      return;
    }
    gave_up_ = false;
    if (communicator_.rank() == 0)
      events_.happened(fmt::format("{} newcomer{} came: grow took {:.1f} ms", wanted,
                                   wanted == 1 ? "" : "s", ms(now_ns() - begin)));
  }

  void die_if_told() {
    for (const ElasticSettings::Fault& kill : elastic_.kills)
      if (is_now(kill)) {
        events_.happened(
            fmt::format("kills itself (kill -9 {}) in step {}: epoch {}, step {} of {}", getpid(),
                        progress_.steps, progress_.steps / steps_per_epoch() + 1,
                        progress_.steps % steps_per_epoch() + 1, steps_per_epoch()));
        communicator_.store()->add(kKilledAt, now_ns(), soon());
        ::kill(getpid(), SIGKILL);
      }
  }

  bool is_now(const ElasticSettings::Fault& fault) const {
    return fault.rank == number_ && static_cast<std::int64_t>(fault.step) == progress_.steps;
  }

  /// Leaves this rank a step behind the others, if the options say so. The next call fails.
  bool has_aborted_for_show() {
    const auto& aborts = elastic_.aborts;
    if (std::none_of(aborts.begin(), aborts.end(), [&](auto& a) { return is_now(a); }) ||
        std::exchange(aborted_at_, progress_.steps) == progress_.steps)
      return false;
    learner_->undo_step();
    communicator_.abort("to show what happens then");
    return true;
  }

  const Dataset& data_;
  Settings settings_;
  const ElasticSettings& elastic_;
  Observer& observer_;
  Events& events_;
  Communicator communicator_;
  std::optional<Learner> learner_;  // none in a newcomer that has no state yet; ends before that
  int number_ = -1;                 // its rank at the start; -1: a newcomer
  int full_size_ = 0;               // the number of ranks at the start
  Progress progress_;

  bool in_step_ = false;  // All ranks have the same state, and learner_ is attached.
  bool gave_up_ = false;  // No newcomers came, so that they are not waited for again.
  bool started_ = false;  // The observer knows, or it is a newcomer, which does not begin.
  std::optional<std::int64_t> grow_at_;  // the epoch before which the ranks wait for newcomers
  std::int64_t shown_ = 0;
  std::int64_t aborted_at_ = -1;  // the step in which it aborted last
};

}  // namespace

ElasticResult train_elastic(bool join, const Dataset& data, const Settings& settings,
                            const ElasticSettings& elastic, Observer& observer, Events& events) {
  check(data, settings, "digits");
  return Elastic(join, data, settings, elastic, observer, events).run();
}

}  // namespace digits
