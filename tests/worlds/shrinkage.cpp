#include "shrinkage.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/communicator_impl.h"
#include "runtime/membership/membership.h"

namespace tutti::worlds {

using namespace std::chrono_literals;

namespace {

std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text.append(text.empty() ? "" : " ").append(std::to_string(rank));
  return text;
}

}  // namespace

struct Shrinkage::Survivor {
  Survivor(int number_, Communicator* comm, const Plan& plan, Ground& ground)
      : number(number_), gone(comm == nullptr) {
    if (gone) return;
    const CommunicatorParts& parts = CommunicatorImpl::of(*comm).parts();
    membership.emplace(parts);
    shrinking.emplace(ground.store(), "shrink", number, plan.ranks, "shrink");
  }

  const int number;
  bool gone;  // it ended before, or ends while the others shrink
  int steps = 0;
  bool joined = false;  // the agreement has asked it to join the members
  bool done = false;
  std::vector<int> members;
  std::optional<Error> error;
  std::optional<Membership> membership;
  std::optional<Regrouping> shrinking;
};

Shrinkage::Shrinkage(const Plan& plan, Ground& ground, std::vector<Member> members)
    : plan_(plan), ground_(ground) {
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    survivors_.push_back(
        std::make_unique<Survivor>(static_cast<int>(rank), members[rank].comm, plan, ground));
}
Shrinkage::~Shrinkage() = default;

std::string Shrinkage::run() {
  for (auto& survivor : survivors_)
    if (!survivor->gone) survivor->shrinking->begin(ground_.clock().now(), 10s, {});
  constexpr int kMostTurns = 400'000;
  const auto over = [](const auto& survivor) {
    return survivor->gone || survivor->done || survivor->error;
  };
  for (int turn = 0; turn < kMostTurns; ++turn) {
    ground_.clock().advance(100us);
    Survivor& one = *survivors_[ground_.draw(survivors_.size())];
    if (!over(&one)) {
      const bool dies = one.number == plan_.dies_in_shrink && one.steps == plan_.dies_after_steps;
      const TimePoint now = ground_.clock().now();
      if (dies) {
        one.gone = true;
      } else if (now >= one.shrinking->next_step()) {
        ++one.steps;
        try {
          one.done = one.shrinking->step(
              now, [&] { return one.membership->lost(); },
              [&](const Regrouped& agreed, const auto&, TimePoint) {
                one.joined = true;
                one.members = agreed.members;
              });
        } catch (const Error& error) {
          one.error = error;
        }
      }
    }
    ground_.runtime().step();
    if (turn % 16 == 0 && std::all_of(survivors_.begin(), survivors_.end(), over)) return check();
  }
  return "shrink hangs";
}

std::string Shrinkage::check() const {
  const std::vector<int>* agreed = nullptr;
  for (const auto& one : survivors_) {
    if (!one->done) continue;
    if (agreed != nullptr && *agreed != one->members)
      return fmt::format("two groups after shrink: {} and {}", listed(*agreed),
                         listed(one->members));
    agreed = &one->members;
  }
  const bool undisturbed =
      plan_.faults.events.empty() &&
      std::none_of(survivors_.begin(), survivors_.end(), [](const auto& one) { return one->gone; });
  for (const auto& one : survivors_) {
    const bool member = agreed != nullptr &&
                        std::find(agreed->begin(), agreed->end(), one->number) != agreed->end();
    if (member && !one->done && !(one->gone && one->joined))
      return fmt::format("rank {} is a member after shrink and has not joined: {}", one->number,
                         one->error ? one->error->what() : "it ended");
    if (undisturbed && !one->done)
      return fmt::format("rank {} gets no communicator of shrink: {}", one->number,
                         one->error ? one->error->what() : "no error");
    if (one->error && one->error->kind() != ErrorKind::timeout &&
        one->error->kind() != ErrorKind::peer_lost)
      return fmt::format("shrink of rank {}: {}", one->number, one->error->what());
  }
  return agreed != nullptr ? call_on(*agreed) : "";
}

// Members that have ended meanwhile would only be lost to the others.
std::string Shrinkage::call_on(const std::vector<int>& members) const {
  for (const int member : members)
    if (survivors_[static_cast<std::size_t>(member)]->gone) return "";
  const int size = static_cast<int>(members.size());
  std::vector<Communicator> again;
  for (CommunicatorParts& parts : ground_.sound(size, "tutti/again"))
    again.push_back(CommunicatorImpl::make(std::move(parts)));
  std::vector<std::int64_t> ones(members.size(), 1);
  std::vector<Work> works;
  for (std::size_t rank = 0; rank < again.size(); ++rank)
    works.push_back(again[rank].all_reduce_async(std::span(&ones[rank], 1), Op::sum));
  for (Work& work : works) work.wait();
  return std::count(ones.begin(), ones.end(), size) == size ? "" : "a wrong sum after shrink";
}

}  // namespace tutti::worlds
