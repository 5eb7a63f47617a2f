// How a communicator's ranks are spread over machines.
#pragma once

#include <span>

namespace tutti {

/// All ranks agree on it.
enum class Spread {
  one_machine,
  machines,
  even_machines,  ///< Each machine has the same number of ranks, more than one, and they are
                  ///< consecutive.
};

/// `machines` has a number for each rank's machine.
Spread spread_over(std::span<const int> machines);

}  // namespace tutti
