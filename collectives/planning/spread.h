// How a communicator's ranks are spread over machines.
#pragma once

#include <span>

namespace tutti {

/// Agreed by all ranks.
enum class Spread {
  one_machine,
  machines,
  even_machines,  ///< The same number on each, more than one, of consecutive ranks.
};

/// `machines`: a number for each rank's.
Spread spread_over(std::span<const int> machines);

}  // namespace tutti
