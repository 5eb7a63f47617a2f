#include "rendezvous/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <sstream>
#include <string>
#include <utility>

#include <tutti/error.hpp>

#include "common/text.h"
#include "rendezvous/store/protocol.h"

namespace tutti {
namespace {

// The most ranks that an error names; further ones are only counted, since hundreds of ranks may
// differ in the same way.
constexpr std::size_t kMostNamed = 16;
constexpr std::chrono::seconds kGrace{2}, kReportEvery{60};
// The bytes of one value. A larger one is split into pages, because the store may hold a reply of
// this size for each of thousands of ranks at once.
constexpr std::size_t kPageBytes = 64 << 10;

std::string list_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i)
    named.push_back(std::to_string(ranks[i]));
  std::string text = join(named, ", ");
  if (ranks.size() > kMostNamed) text += fmt::format(" and {} more", ranks.size() - kMostNamed);
  return text;
}

// The key under which a rank publishes the roster of its subtree; that of rank 0 covers all ranks.
// A roster longer than kPageBytes continues under further keys.
std::string hello_key(std::string_view prefix, int rank, std::size_t page = 0) {
  assert(rank >= 0);
  return page == 0 ? fmt::format("{}/hello/{}", prefix, rank)
                   : fmt::format("{}/hello/{}/{}", prefix, rank, page);
}
// The key under which each rank sets a 1 when it calls. Adding 0 to it reads it without waiting.
std::string arrival_key(std::string_view prefix, int rank) {
  return fmt::format("{}/here/{}", prefix, rank);
}

// The value of `name` in lines of the form "name=value", or "not set" if there is no such line.
std::string value_of(const std::string& settings, std::string_view name) {
  std::istringstream lines(settings);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name) && line.substr(name.size(), 1) == "=")
      return line.substr(name.size() + 1);
  return "not set";
}

void append_names(const std::string& settings, std::vector<std::string>& names) {
  std::istringstream lines(settings);
  for (std::string line; std::getline(lines, line);) {
    std::string name = line.substr(0, line.find('='));
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
}

// Describes how `settings` differ from those of rank 0; empty if they are equal.
std::string differences(const std::string& settings, const std::string& first) {
  std::vector<std::string> names, found;
  append_names(first, names);
  append_names(settings, names);
  for (const std::string& name : names) {
    const std::string theirs = value_of(settings, name), expected = value_of(first, name);
    if (theirs != expected)
      found.push_back(fmt::format("{} is {} there and {} on rank 0", name, theirs, expected));
  }
  return join(found, "; ");
}

// Returns whether a wait has ended at its deadline. A `timeout` before that is the error of another
// rank, which has waited as well.
bool is_over(const Error& error, Store::Deadline deadline) {
  return error.kind() == ErrorKind::timeout && std::chrono::steady_clock::now() >= deadline;
}

/// One rank's part in one exchange.
class Exchange {
 public:
  Exchange(Store& store, std::string_view prefix, int rank, int size, Store::Deadline deadline,
           Reports reports)
      : store_(store),
        prefix_(prefix),
        rank_(rank),
        size_(size),
        deadline_(deadline),
        reports_(reports) {}

  std::vector<Texts> run(Roster roster) {
    store_.add(arrival_key(prefix_, rank_), 1, deadline_);
    try {
      collect(roster);
    } catch (const Error& error) {  // the ranks above in the tree, and then all, get the error too
      if (error.kind() == ErrorKind::corrupt) publish({{}, error.what()});
      throw;
    }
    publish(roster);
    if (rank_ != 0) roster = receive(0, size_, roster.columns.size());
    assert(std::all_of(roster.columns.begin(), roster.columns.end(), [this](const Texts& column) {
      return column.size() == static_cast<std::size_t>(size_);
    }));
    return std::move(roster.columns);
  }

  // Describes which ranks have not called: "3 of 8 ranks ...", or empty if all have. The first rank
  // that asks finds out for all; otherwise each of thousands of ranks would query thousands of
  // keys.
  std::string missing_ranks() {
    const auto deadline = std::chrono::steady_clock::now() + kGrace;
    const std::string key = fmt::format("{}/missing", prefix_);
    if (store_.add(fmt::format("{}/asked", prefix_), 1, deadline) > 1)
      return store_.get(key, deadline);
    const std::vector<int> missing = missing_from(0, deadline);
    std::string text;
    if (!missing.empty())
      text = fmt::format("{} of {} ranks did not come before the deadline: {}", missing.size(),
                         size_, list_ranks(missing)) +
             refused(deadline);
    store_.set(key, text, deadline);
    return text;
  }

 private:
  // Appends to `roster` the rosters of this rank's subtrees.
  void collect(Roster& roster) {
    for (int step = 1; rank_ % (2 * step) == 0 && rank_ + step < size_; step *= 2)
      roster.append(
          receive(rank_ + step, std::min(step, size_ - rank_ - step), roster.columns.size()));
  }

  void publish(const Roster& roster) {
    assert(roster.refusal.empty() || roster.columns.empty());
    const std::string text = encode(roster);
    for (std::size_t page = 0; page * kPageBytes < text.size(); ++page)
      store_.set(hello_key(prefix_, rank_, page),
                 std::string_view(text).substr(page * kPageBytes, kPageBytes), deadline_);
  }

  // Says how many connections the store's server has refused for their secret, if any: one of them
  // may have been a rank's.
  std::string refused(Store::Deadline deadline) const {
    const std::int64_t count = store_.add(rendezvous::kRefusedKey, 0, deadline);
    if (count == 0) return {};
    return fmt::format(
        "; the store has refused {} connection{} with another secret, or without one, "
        "the last from {}",
        count, count == 1 ? "" : "s", shown(store_.get(rendezvous::kRefusedFromKey, deadline)));
  }

  // Returns the ranks from `from` on that have not called.
  std::vector<int> missing_from(int from, Store::Deadline deadline) const {
    std::vector<int> missing;
    for (int rank = from; rank < size_; ++rank)
      if (store_.add(arrival_key(prefix_, rank), 0, deadline) == 0) missing.push_back(rank);
    return missing;
  }

  // Returns the roster, or its first page, that rank `from` publishes. All ranks before `from` have
  // called. While it waits, rank 0 reports which ranks have not called; it does so for all, since a
  // line from each of a thousand ranks would help nobody.
  std::string await_roster(int from) {
    const std::string key = hello_key(prefix_, from);
    if (rank_ != 0 || reports_.log == nullptr) return store_.get(key, deadline_);
    for (;;) {
      if (report_at_ >= deadline_) return store_.get(key, deadline_);
      try {
        return store_.get(key, report_at_);
      } catch (const Error& error) {
        if (!is_over(error, report_at_)) throw;
      }
      report_at_ = std::chrono::steady_clock::now() + kReportEvery;
      const std::vector<int> missing = missing_from(from, deadline_);
      if (!missing.empty())
        reports_.log->write(
            LogLevel::warn,
            "{} of {} ranks have not come yet: {}{}; rank 0 waits for them for {} s",
            missing.size(), size_, list_ranks(missing), refused(deadline_),
            std::chrono::ceil<std::chrono::seconds>(deadline_ - std::chrono::steady_clock::now())
                .count());
    }
  }

  // Waits for the roster of the `ranks` ranks that begin with `from`.
  Roster receive(int from, int ranks, std::size_t columns) {
    assert(0 <= from && from != rank_ && ranks > 0 && from + ranks <= size_);
    std::string text = await_roster(from);
    const std::size_t bytes = roster_bytes(text, from);
    for (std::size_t page = 1; page * kPageBytes < bytes; ++page)
      text += store_.get(hello_key(prefix_, from, page), deadline_);
    Roster roster = decode_roster(text, from);
    if (!roster.refusal.empty()) throw Error(ErrorKind::corrupt, roster.refusal);
    const auto of_others = [&](const Texts& texts) {
      return texts.size() != static_cast<std::size_t>(ranks);
    };
    if (roster.columns.size() != columns ||
        std::any_of(roster.columns.begin(), roster.columns.end(), of_others))
      refuse_roster(from, "of other ranks");
    return roster;
  }

  Store& store_;
  const std::string_view prefix_;
  const int rank_, size_;
  const Store::Deadline deadline_;
  const Reports reports_;
  Store::Deadline report_at_ = std::chrono::steady_clock::now() + reports_.after;
};

}  // namespace

std::vector<Texts> exchange(Store& store, std::string_view prefix, int rank, int size,
                            const std::vector<std::string>& mine, Store::Deadline deadline,
                            Reports reports) {
  assert(0 <= rank && rank < size);
  Exchange exchange(store, prefix, rank, size, deadline, reports);
  try {
    return exchange.run({{mine.begin(), mine.end()}, {}});
  } catch (const Error& error) {
    if (!is_over(error, deadline)) throw;
    const std::string missing = exchange.missing_ranks();
    if (missing.empty()) throw;  // the last rank has called in the meantime
    throw Error(
        ErrorKind::timeout,
        fmt::format("rank {}: {}; see whether they started and what they say", rank, missing));
  }
}

void check_agreement(const Texts& settings, int rank) {
  assert(0 <= rank && static_cast<std::size_t>(rank) < settings.size());
  std::string text;
  std::vector<int> differing;
  std::uint32_t peer = 0;
  for (const Texts::Run& run : settings.runs())
    for (; peer < run.end; ++peer) {
      if (run.value == 0) continue;
      differing.push_back(static_cast<int>(peer));
      if (differing.size() <= kMostNamed)
        text += fmt::format("\n  rank {}: {}", peer,
                            differences(settings.values()[run.value], settings[0]));
    }
  if (differing.empty()) return;
  throw Error(ErrorKind::mismatch,
              fmt::format("rank {}: ranks are set up differently; give all of them the same build "
                          "and settings. Unlike rank 0: {}{}",
                          rank, list_ranks(differing), text));
}

}  // namespace tutti
