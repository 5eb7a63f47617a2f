#include "ddp/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace tutti::ddp {

std::vector<std::size_t> differences(Communicator& communicator,
                                     std::span<const std::uint64_t> mine,
                                     const CallOptions& options) {
  // One all-reduce finds the greatest x and the greatest ~x of all ranks. The latter is ~ of the
  // least x, so all ranks have the same x exactly if the two ends are equal.
  const std::size_t count = mine.size();
  std::vector<std::int64_t> ends(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    ends[i] = static_cast<std::int64_t>(mine[i]);
    ends[count + i] = ~ends[i];
  }
  communicator.all_reduce(std::span(ends), Op::max, options);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < count; ++i)
    if (ends[i] != ~ends[count + i]) found.push_back(i);
  assert(std::is_sorted(found.begin(), found.end()) && found.size() <= count);
  return found;
}

std::string by_rank(Communicator& communicator, std::string_view mine, const CallOptions& options) {
  std::int64_t longest = static_cast<std::int64_t>(mine.size());
  communicator.all_reduce(std::span(&longest, 1), Op::max, options);
  assert(longest >= static_cast<std::int64_t>(mine.size()));

  const auto width = static_cast<std::size_t>(longest);
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::string padded(mine);
  padded.resize(width, '\0');
  std::string all(width * ranks, '\0');
  communicator.all_gather(padded.data(), all.data(), width, DataType::uint8, options);

  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::string_view field = std::string_view(all).substr(r * width, width);
    texts.emplace_back(field.substr(0, field.find('\0')));
  }
  assert(texts.size() == ranks && texts[static_cast<std::size_t>(communicator.rank())] == mine);
  return by_rank(texts);
}

std::string by_rank(std::span<const std::string> texts) {
  constexpr std::size_t kNamed = 8;  // ranks that are named in each group; the others are counted
  std::string result;
  std::vector<bool> reported(texts.size(), false);
  for (std::size_t first = 0; first < texts.size(); ++first) {
    if (reported[first]) continue;
    std::string ranks;
    std::size_t members = 0;
    for (std::size_t r = first; r < texts.size(); ++r) {
      if (texts[r] != texts[first]) continue;
      reported[r] = true;
      if (++members <= kNamed) ranks += fmt::format("{}{}", members == 1 ? "" : ", ", r);
    }
    if (members > kNamed) ranks += fmt::format(" and {} more", members - kNamed);
    assert(members > 0);
    result += fmt::format("{}rank{} {}: {}", result.empty() ? "" : "; ", members == 1 ? "" : "s",
                          ranks, texts[first]);
  }
  return result;
}

}  // namespace tutti::ddp
