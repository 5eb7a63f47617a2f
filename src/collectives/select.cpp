#include "collectives/select.h"

#include <algorithm>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "collectives/algorithms.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(std::string_view name, const std::string& why) {
  std::string known;
  for (const Algorithm& algorithm : algorithms())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", algorithm.name);
  throw Error(ErrorKind::usage,
              fmt::format("algorithm '{}' {}; known are auto, {}", name, why, known));
}

}  // namespace

std::uint32_t algorithm_index(std::string_view name) {
  const auto list = algorithms();
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Algorithm& a) { return a.name == name; });
  if (found == list.end()) refuse(name, "is unknown");
  return static_cast<std::uint32_t>(found - list.begin());
}

Choice choose(const SelectRequest& request, std::string_view forced) {
  const std::size_t message = request.max_message_bytes;
  if (!forced.empty() && forced != "auto") {
    const std::uint32_t index = algorithm_index(forced);
    if (algorithms()[index].knows(request.what, request.ranks)) return {index, message};
  }
  const auto list = algorithms();
  for (std::uint32_t index = 0; index < list.size(); ++index)
    if (list[index].knows(request.what, request.ranks)) return {index, message};
  throw Error(ErrorKind::internal, fmt::format("no algorithm for {} of {} ranks",
                                               to_string(request.what), request.ranks));
}

}  // namespace tutti
