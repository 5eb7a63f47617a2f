#include "rendezvous/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <map>

#include <tutti/error.hpp>

namespace tutti {
namespace {

// The encoding has 32-bit numbers in the machine's byte order, and texts preceded by their length.
// The first number identifies the layout, which distinguishes another version from damage; the
// second is the size of the whole in bytes. Then come the refusal and the columns, each of which
// has its values and then its runs.
constexpr std::uint32_t kLayout = 0x7475'0003;

void put(std::string& out, std::size_t value) {
  assert(value <= std::numeric_limits<std::uint32_t>::max());
  const auto number = static_cast<std::uint32_t>(value);
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void put(std::string& out, std::string_view text) {
  put(out, text.size());
  out.append(text);
}

}  // namespace

void refuse_roster(int rank, std::string_view why) {
  throw Error(ErrorKind::corrupt,
              fmt::format("what rank {} says at start-up cannot be read ({}): is it running the "
                          "same build of tutti?",
                          rank, why));
}

class RosterReader {
 public:
  RosterReader(std::string_view bytes, int rank) : rest_(bytes), rank_(rank) {}

  std::uint32_t number() {
    std::uint32_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number())); }

  Texts texts() {
    Texts texts;
    texts.values_.resize(count(sizeof(std::uint32_t)));
    for (std::string& value : texts.values_) value = text();
    texts.runs_.resize(count(sizeof(Texts::Run)));
    for (Texts::Run& run : texts.runs_) run = {number(), number()};
    check(texts);
    return texts;
  }

  bool at_end() const { return rest_.empty(); }

  [[noreturn]] void refuse(std::string_view why) const { refuse_roster(rank_, why); }

 private:
  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) refuse("cut short");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  // Reads a number of elements, each of which takes at least `bytes` bytes of the input.
  std::size_t count(std::size_t bytes) {
    const std::size_t claimed = number();
    if (claimed > rest_.size() / bytes) refuse("cut short");
    return claimed;
  }

  // Checks that the runs are in ascending order, that values are numbered in the order in which
  // they first occur, and that each value is used.
  void check(const Texts& texts) const {
    std::uint32_t end = 0, known = 0;
    for (const Texts::Run& run : texts.runs_) {
      if (run.end <= end || run.value > known) refuse("ranks out of order");
      end = run.end;
      known = std::max(known, run.value + 1);
    }
    if (known != texts.values_.size()) refuse("a text of no rank");
  }

  std::string_view rest_;
  const int rank_;
};

const std::string& Texts::operator[](std::size_t rank) const {
  assert(rank < size());
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), rank,
                                    [](std::size_t at, const Run& r) { return at < r.end; });
  return values_[run->value];
}

void Texts::append(const Texts& others) {
  assert(others.size() <= std::numeric_limits<std::uint32_t>::max() - size());
  values_.reserve(values_.size() + others.values_.size());  // `numbers` refers to the elements
  std::map<std::string_view, std::uint32_t> numbers;
  for (std::uint32_t number = 0; number < values_.size(); ++number)
    numbers.emplace(values_[number], number);
  std::vector<std::uint32_t> here;  // the index here of each value, by its index in `others`
  for (const std::string& value : others.values_) {
    const auto [place, is_new] = numbers.emplace(value, static_cast<std::uint32_t>(values_.size()));
    if (is_new) values_.push_back(value);
    here.push_back(place->second);
  }
  assert(here.size() == others.values_.size());
  const auto before = static_cast<std::uint32_t>(size());
  for (const Run& run : others.runs_) {
    const Run added{before + run.end, here[run.value]};
    if (!runs_.empty() && runs_.back().value == added.value)
      runs_.back().end = added.end;
    else
      runs_.push_back(added);
  }
  assert(size() == before + others.size());
}

void Roster::append(const Roster& others) {
  assert(others.columns.size() == columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i].append(others.columns[i]);
}

std::string encode(const Roster& roster) {
  std::string out;
  put(out, kLayout);
  put(out, 0);  // a placeholder for the size, which is filled in at the end
  put(out, roster.refusal);
  put(out, roster.columns.size());
  for (const Texts& texts : roster.columns) {
    put(out, texts.values().size());
    for (const std::string& value : texts.values()) put(out, value);
    put(out, texts.runs().size());
    for (const Texts::Run& run : texts.runs()) {
      put(out, run.end);
      put(out, run.value);
    }
  }
  std::string bytes;
  put(bytes, out.size());
  return out.replace(sizeof kLayout, bytes.size(), bytes);
}

std::size_t roster_bytes(std::string_view head, int rank) {
  RosterReader reader(head, rank);
  if (reader.number() != kLayout) reader.refuse("unknown layout");
  return reader.number();
}

Roster decode_roster(std::string_view bytes, int rank) {
  if (roster_bytes(bytes, rank) != bytes.size()) refuse_roster(rank, "cut short");
  RosterReader reader(bytes.substr(kRosterHeadBytes), rank);
  Roster roster;
  roster.refusal = reader.text();
  for (std::uint32_t columns = reader.number(); columns > 0; --columns)
    roster.columns.push_back(reader.texts());
  if (!reader.at_end()) reader.refuse("more than it says");
  return roster;
}

}  // namespace tutti
