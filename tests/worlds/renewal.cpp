#include "renewal.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/communicator_impl.h"
#include "runtime/membership/membership.h"
#include "runtime/membership/newcomer.h"

namespace tutti::worlds {

using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 3s;

std::string listed(const Regrouped& all) {
  std::string text;
  for (const int rank : all.members)
    text.append(text.empty() ? "" : " ").append(std::to_string(rank));
  return text + fmt::format(" and {} newcomers as {}", all.newcomers.size(), all.name);
}

bool passes(const std::optional<Error>& error) {
  return !error || error->kind() == ErrorKind::timeout || error->kind() == ErrorKind::peer_lost;
}

}  // namespace

struct Renewal::Survivor {
  Survivor(int number_, Communicator* comm, const Plan& plan, Ground& ground)
      : number(number_), gone(comm == nullptr) {
    if (gone) return;
    membership.emplace(CommunicatorImpl::of(*comm).parts());
    const char* const call = plan.newcomers > 0 ? "grow" : "shrink";
    agreement.emplace(ground.store(), call, number, plan.ranks, call);
    Demands demands;
    demands.newcomers = plan.newcomers;
    if (plan.newcomers > 0) demands.least = plan.ranks;
    agreement->begin(ground.clock().now(), kPatience, demands);
  }
  bool over() const { return gone || done || error; }

  const int number;
  bool gone;  // it ended before, or ends while the others make the new communicator
  int steps = 0;
  bool joined = false;  // the agreement has asked it to join the members
  bool done = false;
  Regrouped agreed;
  std::optional<Error> error;
  std::optional<Membership> membership;
  std::optional<Regrouping> agreement;
};

// A newcomer does here what join_as_newcomer() does, without waiting.
struct Renewal::Arrival {
  int number = 0;
  TimePoint next_step{};
  bool gone = false, joined = false, done = false;
  int steps = 0;
  std::optional<Coming> coming;
  std::optional<CalledTo> place;
  std::optional<Round> round;
  std::optional<Error> error;

  // A newcomer that nobody has called would wait for ever.
  bool over() const { return gone || done || error || !place; }
};

Renewal::Renewal(const Plan& plan, Ground& ground, std::vector<Member> members)
    : plan_(plan), ground_(ground) {
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    survivors_.push_back(
        std::make_unique<Survivor>(static_cast<int>(rank), members[rank].comm, plan, ground));
  const int coming = plan.newcomers == 0 ? 0 : plan.newcomers + plan.spare_newcomers;
  for (int number = 0; number < coming; ++number) {
    Arrival& arrival = *arrivals_.emplace_back(std::make_unique<Arrival>());
    arrival.number = plan.ranks + number;
    arrival.next_step = ground.clock().now() + Nanoseconds(ground.draw(1'000'000'000));
  }
}
Renewal::~Renewal() = default;

bool Renewal::dies(int number, int steps) const {
  return number == plan_.dies_in_renewal && steps == plan_.dies_after_steps;
}

void Renewal::step(Survivor& one) {
  if (one.over()) return;
  const TimePoint now = ground_.clock().now();
  if (dies(one.number, one.steps)) {
    one.gone = true;
  } else if (now >= one.agreement->next_step()) {
    ++one.steps;
    try {
      one.done = one.agreement->step(
          now, [&] { return one.membership->lost(); },
          [&](const Regrouped& agreed, const auto&, TimePoint) {
            one.joined = true;
            one.agreed = agreed;
          });
    } catch (const Error& error) {
      one.error = error;
    }
  }
}

void Renewal::step(Arrival& one) {
  const TimePoint now = ground_.clock().now();
  if (one.gone || one.done || one.error || now < one.next_step) return;
  one.next_step = now + 2ms;
  if (dies(one.number, one.steps)) {
    one.gone = true;
    return;
  }
  if (!one.coming) {
    one.coming.emplace(ground_.store());
    ++one.steps;
    return;
  }
  try {
    if (!one.place) {
      one.place = one.coming->await_call(std::chrono::steady_clock::now());
      one.round.emplace(*ground_.store(), one.place->round, one.place->ranks,
                        now + std::chrono::milliseconds(one.place->to_join));
      one.joined = false;
    } else if (!one.joined) {
      one.round->join(now);
      one.joined = true;
    } else if (const auto made = newcomers_verdict(*one.round, one.place->size, one.joined, now,
                                                   [] { return false; })) {
      one.done = *made;
      if (!one.done) one.round.reset(), one.place.reset(), one.coming.reset();
    }
    ++one.steps;
  } catch (const Error& error) {
    if (one.place || error.kind() != ErrorKind::timeout) one.error = error;
  }
}

bool Renewal::over() const {
  const auto is_over = [](const auto& one) { return one->over(); };
  return std::all_of(survivors_.begin(), survivors_.end(), is_over) &&
         std::all_of(arrivals_.begin(), arrivals_.end(), is_over);
}

std::string Renewal::run() {
  constexpr int kMostTurns = 400'000;
  for (int turn = 0; turn < kMostTurns; ++turn) {
    ground_.clock().advance(250us);
    const std::size_t drawn = ground_.draw(survivors_.size() + arrivals_.size());
    if (drawn < survivors_.size())
      step(*survivors_[drawn]);
    else
      step(*arrivals_[drawn - survivors_.size()]);
    ground_.runtime().step();
    if (turn % 16 == 0 && over()) return check();
  }
  return "the new communicator hangs";
}

bool Renewal::undisturbed() const {
  const auto gone = [](const auto& one) { return one->gone; };
  return plan_.faults.events.empty() && std::none_of(survivors_.begin(), survivors_.end(), gone) &&
         std::none_of(arrivals_.begin(), arrivals_.end(), gone);
}

std::string Renewal::check() const {
  const Regrouped* agreed = nullptr;
  for (const auto& one : survivors_) {
    if (!one->done) continue;
    if (agreed != nullptr &&
        (agreed->members != one->agreed.members || agreed->newcomers != one->agreed.newcomers ||
         agreed->name != one->agreed.name))
      return fmt::format("two new communicators: {}, and {}", listed(*agreed), listed(one->agreed));
    agreed = &one->agreed;
  }
  if (std::string wrong = check_errors(); !wrong.empty()) return wrong;
  if (agreed == nullptr) {
    // The survivors that had joined may have ended, so that only newcomers have the communicator.
    const bool ended = std::any_of(survivors_.begin(), survivors_.end(),
                                   [](const auto& one) { return one->gone && one->joined; });
    for (const auto& one : arrivals_)
      if (one->done && !ended) return "newcomers alone have a new communicator";
    return "";
  }
  if (std::string wrong = check_members(*agreed); !wrong.empty()) return wrong;
  if (std::string wrong = check_arrivals(*agreed); !wrong.empty()) return wrong;
  return call_on(*agreed);
}

std::string Renewal::check_errors() const {
  for (const auto& one : survivors_) {
    if (!passes(one->error)) return fmt::format("rank {}: {}", one->number, one->error->what());
    if (undisturbed() && !one->done)
      return fmt::format("rank {} gets no new communicator: {}", one->number,
                         one->error ? one->error->what() : "no error");
  }
  for (const auto& one : arrivals_)
    if (one->error) return fmt::format("newcomer {}: {}", one->number, one->error->what());
  return "";
}

std::string Renewal::check_members(const Regrouped& agreed) const {
  for (const auto& one : survivors_)
    if (agreed.includes(one->number) && !one->done && !(one->gone && one->joined))
      return fmt::format("rank {} is a member of the new communicator and has not joined: {}",
                         one->number, one->error ? one->error->what() : "it ended");
  return "";
}

std::string Renewal::check_arrivals(const Regrouped& agreed) const {
  std::vector<int> ranks;
  for (const auto& one : arrivals_) {
    if (!one->done && !(one->gone && one->joined && one->place->name == agreed.name)) continue;
    if (one->place->name != agreed.name || one->place->size != static_cast<int>(agreed.size()))
      return fmt::format("newcomer {} is in another new communicator, {}", one->number,
                         one->place->name);
    ranks.push_back(one->place->rank);
  }
  std::sort(ranks.begin(), ranks.end());
  const auto first = static_cast<int>(agreed.members.size());
  for (std::size_t k = 0; k < ranks.size(); ++k)
    if (ranks[k] != first + static_cast<int>(k)) return "newcomers have wrong ranks";
  return ranks.size() == agreed.newcomers.size() ? "" : "a newcomer has not joined";
}

// Members that have ended meanwhile would only be lost to the others.
std::string Renewal::call_on(const Regrouped& agreed) const {
  for (const int member : agreed.members)
    if (survivors_[static_cast<std::size_t>(member)]->gone) return "";
  const int size = static_cast<int>(agreed.size());
  std::vector<Communicator> again;
  for (CommunicatorParts& parts : ground_.sound(size, "tutti/again"))
    again.push_back(CommunicatorImpl::make(std::move(parts)));
  std::vector<std::int64_t> ones(agreed.size(), 1);
  std::vector<Work> works;
  for (std::size_t rank = 0; rank < again.size(); ++rank)
    works.push_back(again[rank].all_reduce_async(std::span(&ones[rank], 1), Op::sum));
  for (Work& work : works) work.wait();
  return std::count(ones.begin(), ones.end(), size) == size ? "" : "a wrong sum";
}

}  // namespace tutti::worlds
