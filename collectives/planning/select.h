// The choice of the algorithm and of the message size for a call. All ranks come to the same
// choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/types.hpp>

#include "collectives/schedule/program.h"

namespace tutti {

/// How a communicator's ranks are spread over machines. All ranks agree on it.
enum class Spread {
  one_machine,
  machines,
  even_machines,  ///< Each machine has the same number of ranks, more than one, of any numbers.
};

/// `machines` has a number for each rank's machine.
Spread spread_over(std::span<const int> machines);

struct Choice {
  std::uint32_t algorithm;    ///< Index in algorithms().
  std::size_t message_bytes;  ///< At most the transport's largest message.
};

struct SelectRequest {
  Collective what;
  std::size_t bytes;  ///< Length of the whole vector (whole) or of the longest block (blocks).
  int ranks;
  int cores;  ///< The number of cores that the ranks of a machine share; agreed at start-up.
  std::size_t max_message_bytes;
  /// Only a block's two ends know its length, so `bytes` has no meaning.
  bool pair_lengths = false;
  std::size_t element_bytes = 1;  ///< Size of an element in messages.
  bool accumulates_f32 = false;   ///< accumulate = f32.
  bool reproducible = false;      ///< accumulate = reproducible, and a sum of floats.
  bool marked = false;            ///< accumulate = f32, or a premultiplied sum.
  Spread spread = Spread::one_machine;
  std::vector<int> machines = {};  ///< The number of each rank's machine, from 0, if it is known.
  std::vector<int> groups = {};    ///< See PlanRequest::groups.

  // clang-tidy 14 takes the 0 of the generated comparisons for a pointer.
  auto operator<=>(const SelectRequest&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Returns why schedules with these properties cannot serve the call ("keeps ..."), or an empty
/// text if they can.
std::string why_unsuitable(const ScheduleProperties& properties, const SelectRequest& request);

/// Returns whether algorithm `index` implements the collective and can serve the call.
bool can_serve(std::uint32_t index, const SelectRequest& request);

/// Chooses by the table of measurements in select.cpp. `forced` (a name, or empty or "auto") takes
/// precedence for the collectives that the named algorithm implements; with `by_call` it is an
/// error if that algorithm does not implement the collective. Throws `usage` for a name that is
/// unknown or cannot serve the call (see why_unsuitable()).
Choice choose(const SelectRequest& request, std::string_view forced, bool by_call = false);

/// Returns the index of an algorithm by its name; throws `usage`, listing the known names.
std::uint32_t algorithm_index(std::string_view name);

}  // namespace tutti
