// Which algorithm serves a call, and how large its messages are: the same answer on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/types.hpp>

#include "collectives/planning/spread.h"
#include "collectives/schedule/program.h"

namespace tutti {

struct Choice {
  std::uint32_t algorithm;    ///< Index in algorithms().
  std::size_t message_bytes;  ///< At most the transport's.
};

struct SelectRequest {
  Collective what;
  std::size_t bytes;  ///< Of the whole vector (whole) or of the longest block (blocks).
  int ranks;
  int cores;  ///< That the ranks of a machine share; agreed at start.
  std::size_t max_message_bytes;
  bool pair_lengths = false;  ///< Only a block's two ends know its length: `bytes` means nothing.
  std::size_t element_bytes = 1;  ///< In messages.
  bool accumulates_f32 = false;   ///< accumulate = f32.
  bool reproducible = false;      ///< accumulate = reproducible, and a sum of floats.
  bool marked = false;            ///< accumulate = f32, or a premultiplied sum.
  Spread spread = Spread::one_machine;
  std::vector<int> machines = {};  ///< By rank, where it is known: its machine's number from 0.
  std::vector<int> groups = {};    ///< As PlanRequest::groups.
};

/// Why schedules with these facts cannot serve the call: "keeps ...". Empty: they can.
std::string unfit(const Facts& facts, const SelectRequest& request);

/// Whether algorithm `index` knows the collective and fits the call.
bool can_serve(std::uint32_t index, const SelectRequest& request);

/// By the table of measurements in select.cpp; `forced` (a name, or empty or "auto") overrides it
/// for the collectives that the named algorithm knows. Throws `usage` for a name that is unknown or
/// cannot serve the call (see unfit()).
Choice choose(const SelectRequest& request, std::string_view forced, bool by_call = false);

/// Index of an algorithm by name; throws `usage` listing the known ones.
std::uint32_t algorithm_index(std::string_view name);

}  // namespace tutti
