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

namespace tutti {
namespace {

// A job of hundreds can differ in one way: these many ranks are named, the rest counted.
constexpr std::size_t kMostNamed = 16;
constexpr std::chrono::seconds kGrace{1};
constexpr std::size_t kPageBytes = 512 << 10, kLengthDigits = 8;

std::string list_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i)
    named.push_back(std::to_string(ranks[i]));
  std::string text = join(named, ", ");
  if (ranks.size() > kMostNamed) text += fmt::format(" and {} more", ranks.size() - kMostNamed);
  return text;
}

// Beside its hello each rank leaves a 1 under a key of its own, because adding 0 asks for it
// without waiting.
std::string hello_key(std::string_view prefix, int rank) {
  return fmt::format("{}/hello/{}", prefix, rank);
}
std::string arrival_key(std::string_view prefix, int rank) {
  return fmt::format("{}/here/{}", prefix, rank);
}

std::vector<int> missing_ranks(Store& store, std::string_view prefix, int size) {
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank)
    if (store.add(arrival_key(prefix, rank), 0, deadline) == 0) missing.push_back(rank);
  return missing;
}

// "name=value" lines; a name that is not there reads "not set".
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

std::string difference(std::string_view what, std::string_view theirs, std::string_view first) {
  return fmt::format("{} is {} there and {} on rank 0", what, theirs, first);
}

// In words, or empty where they fit.
std::string differences(const Hello& hello, const Hello& first) {
  std::vector<std::string> found;
  if (hello.version != first.version)
    found.push_back(difference("tutti's version", hello.version, first.version));
  if (hello.settings != first.settings) {
    std::vector<std::string> names;
    append_names(first.settings, names);
    append_names(hello.settings, names);
    for (const std::string& name : names) {
      const std::string theirs = value_of(hello.settings, name);
      const std::string expected = value_of(first.settings, name);
      if (theirs != expected) found.push_back(difference(name, theirs, expected));
    }
  }
  if (hello.schedules != first.schedules)
    found.push_back(difference("the table of algorithms", fmt::format("{:016x}", hello.schedules),
                               fmt::format("{:016x}", first.schedules)));
  return join(found, "; ");
}

// All hellos, each behind its length, in as many values as it takes: rank 0 writes them, so that a
// rank reads a few values and not one of each other.
std::string book_key(std::string_view prefix, std::size_t page) {
  return fmt::format("{}/hello/book/{}", prefix, page);
}

void write_book(Store& store, std::string_view prefix, int size, Store::Deadline deadline) {
  std::string page;
  std::size_t pages = 0;
  const auto turn = [&] {
    store.set(book_key(prefix, pages++), std::exchange(page, {}), deadline);
  };
  for (int rank = 0; rank < size; ++rank) {
    const std::string hello = store.get(hello_key(prefix, rank), deadline);
    if (!page.empty() && page.size() + hello.size() + kLengthDigits > kPageBytes) turn();
    page.append(fmt::format("{:>{}}", hello.size(), kLengthDigits)).append(hello);
  }
  turn();
}

std::vector<Hello> read_book(Store& store, std::string_view prefix, int size,
                             Store::Deadline deadline) {
  std::vector<Hello> hellos;
  for (std::size_t page = 0; hellos.size() < static_cast<std::size_t>(size); ++page) {
    const std::string text = store.get(book_key(prefix, page), deadline);
    for (std::string_view left = text; !left.empty();) {
      const auto bytes = parse_number<std::size_t>(trim(left.substr(0, kLengthDigits)));
      if (!bytes || left.size() < kLengthDigits + *bytes)
        throw Error(ErrorKind::corrupt,
                    "what rank 0 wrote of all ranks cannot be read: is it "
                    "running the same build of tutti?");
      hellos.push_back(
          decode_hello(left.substr(kLengthDigits, *bytes), static_cast<int>(hellos.size())));
      left.remove_prefix(kLengthDigits + *bytes);
    }
  }
  return hellos;
}

}  // namespace

std::vector<Hello> exchange_hellos(Store& store, std::string_view prefix, int rank, int size,
                                   const Hello& mine, Store::Deadline deadline) {
  assert(0 <= rank && rank < size);
  store.set(hello_key(prefix, rank), encode(mine), deadline);
  store.add(arrival_key(prefix, rank), 1, deadline);
  try {
    if (rank == 0) write_book(store, prefix, size, deadline);
    return read_book(store, prefix, size, deadline);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::timeout) throw;
    const std::vector<int> missing = missing_ranks(store, prefix, size);
    if (missing.empty()) throw;  // the last came in this moment
    throw Error(ErrorKind::timeout,
                fmt::format("rank {}: {} of {} ranks did not come before the start-up deadline: "
                            "{}; see whether they started and what they say, or raise "
                            "TUTTI_STARTUP_TIMEOUT_MS",
                            rank, missing.size(), size, list_ranks(missing)));
  }
}

void check_agreement(const std::vector<Hello>& hellos, int rank) {
  std::string text;
  std::vector<int> differing;
  for (std::size_t peer = 1; peer < hellos.size(); ++peer) {
    const std::string found = differences(hellos[peer], hellos[0]);
    if (found.empty()) continue;
    differing.push_back(static_cast<int>(peer));
    if (differing.size() <= kMostNamed) text += fmt::format("\n  rank {}: {}", peer, found);
  }
  if (differing.empty()) return;
  throw Error(ErrorKind::mismatch,
              fmt::format("rank {}: ranks are set up differently; give all of them the same build "
                          "and settings. Unlike rank 0: {}{}",
                          rank, list_ranks(differing), text));
}

}  // namespace tutti
