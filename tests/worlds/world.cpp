#include "world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "calls.h"
#include "ground.h"
#include "player.h"
#include "renewal.h"
#include "runtime/communicator_impl.h"

namespace tutti::worlds {
namespace {

// After an error, a call's memory is the program's: a program may free it, which AddressSanitizer
// sees, or write something else there, which must stay.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFrees = true;
#elif defined(__has_feature)
constexpr bool kFrees = __has_feature(address_sanitizer);
#else
constexpr bool kFrees = false;
#endif
constexpr std::byte kTakenBack{0xcd};

class World {
 public:
  explicit World(const Plan& plan);
  Outcome run();

 private:
  enum class Form { async, persistent, blocking };

  // The steps of the program.
  void act(Player& player);
  bool make(Player& player, std::size_t number);
  void call(Player& player, Seat& seat, std::size_t number);
  void make_call(Player& player, Seat& seat, Attempt& attempt, Form form);
  void exchange(Player& player, Seat& seat, std::size_t number);
  void group(Player& player, Seat& seat, std::size_t number);
  bool end(Player& player, Seat& seat, std::size_t number);
  void begin_split(Player& player, Seat& seat, std::size_t number);
  void advance_split(Player& player, Split& split);

  // These end calls.
  Attempt& attempt(Player& player, std::size_t number);
  void register_some(Player& player, Attempt& attempt);
  void launch(Player& player, Attempt& attempt, Form form, const std::function<void()>& body);
  void ended(Player& player, Attempt& attempt, const Error* error);
  void settle(Player& player);
  void check_error(Player& player, int slot, const Error& error, std::size_t number);

  bool others_have_begun(const Player& player, const Seat& seat, std::size_t number) const;
  bool chance(const Player& player, const Step& step, int salt, std::uint64_t one_in) const {
    return mix(step.salt + static_cast<std::uint64_t>(player.number * 16 + salt)) % one_in == 0;
  }
  bool dead(Player& player);
  bool all_over();
  void finish();
  void destroy(Player& player);
  void fail(const Player& player, std::size_t number, const std::string& what);
  std::string report() const;
  TimePoint now() { return ground_.clock().now(); }

  const Plan& plan_;
  Ground ground_;
  Happened happened_;
  std::vector<std::vector<bool>> begun_;  // by step and rank
  std::deque<Player> players_;
  Outcome outcome_;
  bool finishing_ = false;  // all communicators are being destroyed
};

World::World(const Plan& plan) : plan_(plan), ground_(plan) {
  happened_.begun.resize(plan.steps.size());
  happened_.broken.resize(plan.steps.size());
  begun_.resize(plan.steps.size(), std::vector<bool>(static_cast<std::size_t>(plan.ranks)));
  for (int rank = 0; rank < plan.ranks; ++rank) {
    Player& player = players_.emplace_back();
    player.number = rank;
    player.seats.resize(static_cast<std::size_t>(plan.slots));
    for (int slot = 0; slot < plan.slots; ++slot) {
      Seat& seat = player.seats[slot];
      seat.members = members(plan, slot, rank);
      const auto self = std::find(seat.members.begin(), seat.members.end(), rank);
      seat.rank = static_cast<int>(self - seat.members.begin());
      if (seat.members.empty()) seat.state = Seat::State::absent;
    }
  }
  for (int base = 0; base < plan.bases; ++base) {
    auto all = ground_.base(base);
    for (Player& player : players_) {
      player.seats[base].comm = CommunicatorImpl::make(std::move(all[player.number]));
      player.seats[base].state = Seat::State::here;
    }
  }
}

void World::fail(const Player& player, std::size_t number, const std::string& what) {
  if (!outcome_.wrong.empty()) return;
  outcome_.wrong = fmt::format(
      "rank {}, step {}{}: {}", player.number, number,
      number < plan_.steps.size() ? fmt::format(" ({})", describe(plan_.steps[number])) : "", what);
}

bool World::dead(Player& player) {
  if (player.dead) return true;
  const TimePoint at = now();
  player.dead = std::any_of(
      plan_.faults.events.begin(), plan_.faults.events.end(), [&](const faulty::Event& event) {
        return event.kind == faulty::Event::Kind::cut && event.peer == faulty::Event::kAllPeers &&
               event.rank == player.number && at >= event.at;
      });
  if (player.dead) player.note(at, player.next, "is killed");
  return player.dead;
}

bool World::others_have_begun(const Player& player, const Seat& seat, std::size_t number) const {
  return std::all_of(seat.members.begin(), seat.members.end(),
                     [&](int member) { return member == player.number || begun_[number][member]; });
}

void World::act(Player& player) {
  if (finishing_ || dead(player)) return;
  settle(player);
  for (const auto& split : player.splits) advance_split(player, *split);
  std::erase_if(player.splits, [](const auto& split) { return split->over; });
  if (player.next == plan_.steps.size()) return;
  const std::size_t number = player.next;
  const Step& step = plan_.steps[number];
  Seat& seat = player.seats[step.slot];
  if (seat.state == Seat::State::absent) {
    if (step.what == What::split) player.seats[step.child].state = Seat::State::absent;
    ++player.next;
    return;
  }
  if (seat.state == Seat::State::awaited || player.is_busy(step.slot)) {
    // In a callback of its own communicator a rank may begin calls; in a blocking call it may not.
    if (seat.state == Seat::State::awaited || player.busy.back() != step.slot) return;
  }
  if (player.attempts.size() >= 6) return;
  if (player.number == plan_.slow_rank && chance(player, step, 1, 2)) {
    const TimePoint at = now();
    if (player.paused_until == TimePoint()) player.paused_until = at + plan_.timeout * 6 / 10;
    if (at < player.paused_until) return ground_.clock().advance(plan_.timeout / 4000);
    player.paused_until = {};
  }
  if (make(player, number)) ground_.clock().moved();
}

// Makes a step; returns false if that is not possible yet.
bool World::make(Player& player, std::size_t number) {
  const Step& step = plan_.steps[number];
  Seat& seat = player.seats[step.slot];
  if (step.what == What::end) return end(player, seat, number);
  ++player.next;
  begun_[number][player.number] = true;
  const int chosen = static_cast<int>(step.salt % seat.members.size());
  try {
    switch (step.what) {
      case What::exchange: exchange(player, seat, number); break;
      case What::group: group(player, seat, number); break;
      case What::split: begin_split(player, seat, number); break;
      case What::abort:
        if (seat.rank != chosen) break;
        happened_.begun[number] = true;
        seat.comm->abort("the world wants it");
        break;
      case What::mismatch:
        happened_.begun[number] = happened_.begun[number] || seat.members.size() > 1;
        [[fallthrough]];
      case What::collective:
      case What::end: call(player, seat, number); break;
    }
  } catch (const Error& error) {
    check_error(player, step.slot, error, number);
  }
  return true;
}

Attempt& World::attempt(Player& player, std::size_t number) {
  auto& made = *player.attempts.emplace_back(std::make_unique<Attempt>());
  made.step = number;
  made.slot = plan_.steps[number].slot;
  made.begun = now();
  return made;
}

// Registered memory is read in place over queue pairs.
void World::register_some(Player& player, Attempt& attempt) {
  if (plan_.transport != "verbs" || chance(player, plan_.steps[attempt.step], 6, 3)) return;
  CommunicatorImpl& comm = CommunicatorImpl::of(*player.seats[attempt.slot].comm);
  for (Memory& memory : attempt.memories)
    if (auto held = comm.register_memory(memory.bytes.data(), memory.bytes.size()))
      attempt.registered.push_back(std::move(held));
}

// Makes a call by `body`, and ends the attempt at once where that throws or was a blocking call.
void World::launch(Player& player, Attempt& attempt, Form form, const std::function<void()>& body) {
  player.note(attempt.begun, attempt.step, form == Form::blocking ? "blocks" : "begins");
  register_some(player, attempt);
  player.busy.push_back(attempt.slot);
  std::optional<Error> error;
  try {
    body();
  } catch (const Error& thrown) {
    error = thrown;
  }
  player.busy.pop_back();
  if (error || form == Form::blocking) {
    ended(player, attempt, error ? &*error : nullptr);
    return;
  }
  const bool acts = form == Form::async && chance(player, plan_.steps[attempt.step], 2, 3);
  attempt.work.then([this, &player, &attempt, acts](const Error* failed) {
    ended(player, attempt, failed);
    if (!acts || std::count(player.busy.begin(), player.busy.end(), attempt.slot) > 0) return;
    player.busy.push_back(attempt.slot);
    act(player);
    player.busy.pop_back();
  });
}

void World::call(Player& player, Seat& seat, std::size_t number) {
  const Step& step = plan_.steps[number];
  const Step own = own_call(step, seat);
  Attempt& made = attempt(player, number);
  made.memories.push_back(memory_of_collective(own, seat.members, seat.rank));
  const bool in_callback = !player.busy.empty();
  const bool last = others_have_begun(player, seat, number);
  Form form = Form::async;
  if (last && !player.is_busy(step.slot) && chance(player, step, 3, 2)) form = Form::blocking;
  if (form == Form::async && !in_callback && chance(player, step, 4, 5)) form = Form::persistent;
  make_call(player, seat, made, form);
}

void World::make_call(Player& player, Seat& seat, Attempt& made, Form form) {
  const Step step = own_call(plan_.steps[made.step], seat);
  CommunicatorImpl& comm = CommunicatorImpl::of(*seat.comm);
  const Call call = call_of(step, seat, made.memories.front());
  launch(player, made, form, [&] {
    if (form == Form::blocking) return comm.call(call);
    if (form == Form::async) {
      made.work = comm.call_async(call);
    } else {
      made.persistent.emplace(comm.make_persistent(call));
      made.work = made.persistent->start();
    }
  });
}

void World::exchange(Player& player, Seat& seat, std::size_t number) {
  const Step& step = plan_.steps[number];
  const int size = static_cast<int>(seat.members.size());
  const int to = (seat.rank + step.shift) % size;
  const int from = (seat.rank + size - step.shift % size) % size;
  CommunicatorImpl& comm = CommunicatorImpl::of(*seat.comm);
  Attempt& send = attempt(player, number);
  Memory& sent = send.memories.emplace_back(memory_of_send(step, player.number));
  Attempt& recv = attempt(player, number);
  Memory& got = recv.memories.emplace_back(memory_of_recv(step, seat.members[from]));
  recv.receives = true;
  recv.expected_source = from;
  TransferCall receive =
      transfer(step, number, Direction::recv, step.any_source ? kAnySource : from, got.out());
  receive.received = &recv.received;
  const bool last = others_have_begun(player, seat, number);
  const bool blocks = last && !player.is_busy(step.slot) && chance(player, step, 3, 2);
  const auto do_send = [&] {
    launch(player, send, Form::async, [&] {
      send.work = comm.call_async(transfer(step, number, Direction::send, to, sent.in()));
    });
  };
  const bool send_first = blocks || chance(player, step, 5, 2);
  if (send_first) do_send();
  if (seat.comm)  // a callback of the send may have destroyed it
    launch(player, recv, blocks ? Form::blocking : Form::async, [&] {
      if (blocks)
        comm.call(receive);
      else
        recv.work = comm.call_async(receive);
    });
  if (!send_first) do_send();
}

void World::group(Player& player, Seat& seat, std::size_t number) {
  const Step& step = plan_.steps[number];
  const int size = static_cast<int>(seat.members.size());
  const int to = (seat.rank + step.shift) % size;
  const int from = (seat.rank + size - step.shift % size) % size;
  CommunicatorImpl& comm = CommunicatorImpl::of(*seat.comm);
  Attempt& made = attempt(player, number);
  Memory& sent = made.memories.emplace_back(memory_of_send(step, player.number));
  Memory& got = made.memories.emplace_back(memory_of_recv(step, seat.members[from]));
  Memory& all = made.memories.emplace_back(memory_of_collective(step, seat.members, seat.rank));
  made.receives = true;
  made.expected_source = from;
  const bool last = others_have_begun(player, seat, number);
  const bool blocks = last && !player.is_busy(step.slot) && chance(player, step, 3, 2);
  launch(player, made, blocks ? Form::blocking : Form::async, [&] {
    Group* const group = &made.group.emplace();
    TransferCall receive = transfer(step, number, Direction::recv,
                                    step.any_source ? kAnySource : from, got.out(), group);
    receive.received = &made.received;
    comm.call(receive);
    comm.call(call_of(step, seat, all, group));
    comm.call(transfer(step, number, Direction::send, to, sent.in(), group));
    if (blocks)
      group->end();
    else
      made.work = group->end_async();
  });
}

// Destroys the communicator once this rank's calls have ended, or while they are under way where
// the others have made theirs, too: the destructor waits for them.
bool World::end(Player& player, Seat& seat, std::size_t number) {
  const int slot = plan_.steps[number].slot;
  const bool splits =
      std::any_of(player.splits.begin(), player.splits.end(),
                  [&](const auto& split) { return plan_.steps[split->step].slot == slot; });
  const bool persistent = std::any_of(
      player.attempts.begin(), player.attempts.end(),
      [&](const auto& attempt) { return attempt->slot == slot && attempt->persistent; });
  if (splits || persistent || player.is_busy(slot)) {
    const bool in_own_callback = !splits && !persistent && player.busy.size() == 1;
    if (!in_own_callback) return false;
  }
  begun_[number][player.number] = true;
  const int unended = static_cast<int>(
      std::count_if(player.attempts.begin(), player.attempts.end(),
                    [&](const auto& attempt) { return attempt->slot == slot && !attempt->ended; }));
  if (unended > 0 && (!others_have_begun(player, seat, number) || !player.busy.empty()))
    return false;
  ++player.next;
  player.note(now(), number, "destroys");
  player.busy.push_back(slot);
  seat.state = Seat::State::absent;
  seat.comm.reset();
  player.busy.pop_back();
  return true;
}

void World::begin_split(Player& player, Seat& seat, std::size_t number) {
  const Step& step = plan_.steps[number];
  auto& split = *player.splits.emplace_back(std::make_unique<Split>());
  split.step = number;
  CommunicatorImpl& comm = CommunicatorImpl::of(*seat.comm);
  const SplitCard card =
      step.colors == 1 ? dup_card()
                       : split_card(color_of(step, player.number), key_of(step, player.number));
  player.note(now(), number, "splits");
  try {
    split.splitting = std::make_unique<Splitting>(comm.parts(), card);
    split.work = comm.call_async(split.splitting->exchange());
  } catch (const Error& error) {
    split.error = error;
    split.exchanged = true;
    return;
  }
  split.work.then([&split](const Error* error) {
    if (error != nullptr) split.error = *error;
    split.exchanged = true;
  });
}

// Does what CommunicatorImpl::split() does, without waiting.
void World::advance_split(Player& player, Split& split) {
  const Step& step = plan_.steps[split.step];
  if (split.over || !split.exchanged || !split.work.done() || player.is_busy(step.slot)) return;
  Seat& seat = player.seats[step.child];
  CommunicatorImpl& whole = CommunicatorImpl::of(*player.seats[step.slot].comm);
  try {
    if (split.error) throw *split.error;
    if (!split.made) {
      if (!split.splitting->compare()) {
        split.over = true;
        if (seat.state != Seat::State::absent) fail(player, split.step, "split off without a part");
        return;
      }
      split.splitting->make(now() + plan_.timeout);
      split.made = true;
    }
    if (!split.splitting->joined()) {
      split.splitting->look(now(), true);
      if (!split.splitting->joined()) return;
    }
    seat.comm = CommunicatorImpl::make(split.splitting->take_parts(now()));
    seat.state = Seat::State::here;
    if (seat.comm->size() != static_cast<int>(seat.members.size()) ||
        seat.comm->rank() != seat.rank)
      fail(player, split.step, "the new communicator has other members");
    player.note(now(), split.step, "has its part");
  } catch (const Error& error) {
    const Error said = split.made ? split.splitting->give_up(whole.failure().set(error)) : error;
    check_error(player, step.slot, said, split.step);
    happened_.broken[split.step].insert(said.kind());
    seat.state = Seat::State::absent;
  }
  split.over = true;
  ground_.clock().moved();
}

void World::check_error(Player& player, int slot, const Error& error, std::size_t number) {
  ++outcome_.errors;
  const TimePoint at = now();
  player.note(at, number, to_string(error.kind()));
  const auto kinds = allowed(plan_, happened_, slot, player.number, at);
  if (!kinds.contains(error.kind()))
    return fail(
        player, number,
        fmt::format("at {} us an error that no fault explains: {}: {}",
                    at.time_since_epoch().count() / 1000, to_string(error.kind()), error.what()));
  const std::string_view text = error.what();
  // Where paths fail, a rank may hear of a mismatch after others have made many more calls.
  const bool soon = plan_.faults.events.empty() && plan_.network.empty();
  if (error.kind() == ErrorKind::mismatch && soon &&
      (text.find("all_reduce(") == text.npos || text.find("no longer on record") != text.npos))
    fail(player, number, fmt::format("the error does not say what was called: {}", text));
}

void World::ended(Player& player, Attempt& attempt, const Error* error) {
  const Step& step = plan_.steps[attempt.step];
  const Seat& seat = player.seats[attempt.slot];
  if (attempt.ended) return fail(player, attempt.step, "the call ends twice");
  attempt.ended = true;
  attempt.succeeded = error == nullptr;
  ++outcome_.calls;
  ground_.clock().moved();
  if (dead(player)) return;
  if (error != nullptr) check_error(player, attempt.slot, *error, attempt.step);
  const TimePoint at = now();
  if (error == nullptr) player.note(at, attempt.step, "ends");
  if (at - attempt.begun > 4 * plan_.timeout)
    fail(player, attempt.step, fmt::format("took {} us", (at - attempt.begun).count() / 1000));
  const bool flipped = may_be_wrong(plan_, seat.members);
  if (error == nullptr && step.what == What::mismatch && seat.members.size() > 1 && !flipped)
    return fail(player, attempt.step, "calls that do not match end well");
  for (const Memory& memory : attempt.memories) {
    const std::string wrong = memory.wrong(attempt.succeeded && !flipped);
    if (!wrong.empty()) fail(player, attempt.step, wrong);
  }
  if (!attempt.receives || error != nullptr || flipped) return;
  const Received& received = attempt.received;
  if (received.source != attempt.expected_source || received.count != step.count ||
      received.tag != static_cast<int>(attempt.step))
    fail(player, attempt.step,
         fmt::format("received {} elements of rank {} with tag {}", received.count, received.source,
                     received.tag));
}

// Takes back the memory of calls that have ended.
void World::settle(Player& player) {
  for (auto& attempt : player.attempts) {
    if (attempt->settled || !attempt->ended || !attempt->work.done()) continue;
    if (attempt->persistent && player.is_busy(attempt->slot)) continue;
    attempt->settled = true;
    attempt->persistent.reset();
    attempt->group.reset();
    attempt->registered.clear();
    for (Memory& memory : attempt->memories) {
      std::fill(memory.bytes.begin(), memory.bytes.end(), kTakenBack);
      if (kFrees) memory.bytes = {};
    }
  }
  if (!player.busy.empty()) return;  // a loop outside may go through them
  for (auto& attempt : player.attempts)
    if (attempt->settled && !attempt->succeeded) player.past.push_back(std::move(attempt));
  std::erase_if(player.attempts,
                [](const auto& attempt) { return attempt == nullptr || attempt->settled; });
}

bool World::all_over() {
  return std::all_of(players_.begin(), players_.end(), [&](Player& player) {
    return dead(player) ||
           (player.next == plan_.steps.size() && player.attempts.empty() && player.splits.empty());
  });
}

Outcome World::run() {
  // Where one rank of many waits for a deadline, the clock is seldom read: later it advances here.
  constexpr int kLongTurns = 2'000'000, kMostTurns = 3'000'000;
  const auto players = static_cast<std::uint64_t>(plan_.ranks);
  bool over = false;
  for (int turn = 0; turn < kMostTurns && outcome_.wrong.empty(); ++turn) {
    if (turn > kLongTurns) ground_.clock().advance(plan_.timeout / 250'000);
    ground_.advance_network();
    const std::uint64_t drawn = ground_.draw(players * 4);
    if (drawn < players)
      act(players_[drawn]);
    else
      ground_.runtime().step();
    if (turn % 16 == 0 && (over = all_over())) break;
  }
  if (!over && outcome_.wrong.empty()) outcome_.wrong = "it hangs";
  if (outcome_.wrong.empty() && plan_.renews) {
    std::vector<Renewal::Member> members;
    for (Player& player : players_)
      members.push_back({player.dead ? nullptr : &*player.seats[0].comm, player.dead});
    outcome_.wrong = Renewal(plan_, ground_, std::move(members)).run();
  }
  if (!outcome_.wrong.empty()) outcome_.wrong += "\n" + report();
  outcome_.ended_at = now();
  finish();
  return outcome_;
}

// Ends all communicators, and looks whether memory of failed calls has been touched.
void World::finish() {
  finishing_ = true;
  // Bytes that arrive late for calls that have failed must not be written to their memory.
  for (int second = 0; second < 2; ++second) {
    ground_.clock().advance(std::chrono::seconds(1));
    ground_.runtime().step();
  }
  ground_.hurry();
  if (outcome_.wrong.empty())
    for (Player& player : players_)
      if (!player.dead) destroy(player);
  for (Player& player : players_) {
    if (player.dead || !outcome_.wrong.empty())
      for (Seat& seat : player.seats)
        if (seat.comm) CommunicatorImpl::of(*seat.comm).failure().abort("the world has ended");
  }
  for (Player& player : players_) destroy(player);
  ground_.runtime().step();
  for (Player& player : players_)
    for (const auto& attempt : player.past)
      for (const Memory& memory : attempt->memories)
        if (std::any_of(memory.bytes.begin(), memory.bytes.end(),
                        [](std::byte byte) { return byte != kTakenBack; }))
          fail(player, attempt->step, "memory was written after the call had failed");
}

void World::destroy(Player& player) {
  player.busy.push_back(-1);
  // An exchange that is under way uses the memory of its split until the communicator has ended.
  std::erase_if(player.splits, [](const auto& split) { return split->exchanged; });
  for (const auto& attempt : player.attempts) attempt->persistent.reset();
  for (auto seat = player.seats.rbegin(); seat != player.seats.rend(); ++seat) seat->comm.reset();
  player.splits.clear();
  player.busy.pop_back();
}

std::string World::report() const {
  std::string text;
  constexpr int kMost = 8;  // ranks, as a larger world is hard to read in any case
  for (const Player& player : players_) {
    if (player.number == kMost) return text + "  ...\n";
    text += fmt::format("  rank {}{}, at step {}:", player.number, player.dead ? " (dead)" : "",
                        player.next);
    for (const Note& note : player.notes)
      text += fmt::format(" {}us:#{} {};", note.at.time_since_epoch().count() / 1000, note.step,
                          note.what);
    text += "\n";
  }
  return text;
}

}  // namespace

Outcome run(const Plan& plan) { return World(plan).run(); }

Plan shrunk(Plan failing) {
  for (bool smaller_fails = true; smaller_fails;) {
    smaller_fails = false;
    for (Plan& less : smaller(failing)) {
      if (run(less).wrong.empty()) continue;
      failing = std::move(less);
      smaller_fails = true;
      break;
    }
  }
  return failing;
}

}  // namespace tutti::worlds
